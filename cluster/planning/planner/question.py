"""What is asked of the planner: a workload, engines, targets and prices."""

from dataclasses import dataclass
from math import inf

from cluster.planning.outcome import Slo
from cluster.planning.planner.topology import Topology
from cluster.planning.settings import ClusterSettings, EngineSettings, NetworkSettings, split
from cluster.planning.step_time import ProfiledStepTime, StepTime
from cluster.planning.trace import Trace
from routing.profile import Profile

MAX_MODEL_LEN = 131_072
MAX_TOKENS = 2_000
"""What clients say they want at most, where the trace tells what they got only."""


class CannotPlan(ValueError):
    """The question has no answer; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a replica costs, in any unit: euros an hour, or devices."""

    prefill: float = 1.0
    decode: float = 1.0

    def of(self, topology: Topology) -> float:
        """All replicas; those that do everything cost as decode does."""
        return self.prefill * topology.prefill + self.decode * topology.decode


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica: the rates the router is told, how long its steps really take, and how many tokens it holds."""

    rates: Profile
    step_time: StepTime
    kv_tokens: int
    host_tokens: int = 0

    @staticmethod
    def profiled(rates: Profile, kv_tokens: int, host_tokens: int = 0) -> "Engine":
        """One whose steps take what its rates say."""
        return Engine(rates, ProfiledStepTime(rates), kv_tokens, host_tokens)


@dataclass(frozen=True, slots=True)
class Question:
    """`trace` is served by replicas of one `engine`; a request that keeps `slo` is good.

    Fewer, larger blocks make simulating faster: those of the trace are used, whatever the engines' own size.
    """

    trace: Trace
    engine: Engine
    slo: Slo
    costs: Costs = Costs()
    itl_target_s: float = inf
    seed: int = 1

    def __post_init__(self) -> None:
        """Raises `CannotPlan` for a request that no replica can hold: it would wait for ever."""
        longest = max(self.trace.requests, key=lambda request: request.prompt_tokens + request.output_tokens)
        tokens = longest.prompt_tokens + longest.output_tokens
        if tokens + self.trace.block_size_tokens > min(self.engine.kv_tokens, MAX_MODEL_LEN):
            raise CannotPlan(
                f"a request of {longest.prompt_tokens:,} + {longest.output_tokens:,} tokens does not fit in the KV "
                f"cache of a replica ({self.engine.kv_tokens:,} tokens): take larger replicas, e.g. h100x2/… as the "
                "profile, or leave out long requests"
            )

    def cluster(self, topology: Topology) -> ClusterSettings:
        """Such a cluster, for the simulator."""
        rates, size = self.engine.rates, self.trace.block_size_tokens
        engine = EngineSettings(
            step_time=self.engine.step_time,
            block_size_tokens=size,
            device_blocks=self.engine.kv_tokens // size,
            max_batched_tokens=rates.chunk_tokens,
            max_running=rates.max_running,
            max_model_len=MAX_MODEL_LEN + MAX_TOKENS,
            kv_bytes_per_token=rates.kv_bytes_per_token,
            load_bytes_per_s=rates.host_bytes_per_s,
            load_latency_s=rates.host_latency_s,
            host_blocks=self.engine.host_tokens // size,
        )
        network = NetworkSettings(rates.remote_bytes_per_s, transfer_latency_s=rates.remote_latency_s)
        cluster = split(topology.prefill, topology.decode, engine, network)
        return ClusterSettings(cluster.workers, cluster.network, MAX_TOKENS)
