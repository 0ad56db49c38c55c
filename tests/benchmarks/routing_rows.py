"""One row of the routing benchmark: a policy on a topology at a speed, simulated by us or replayed by Dynamo."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

from cluster.planning.gateway import Gateway
from cluster.planning.lending import Lending
from cluster.planning.outcome import Slo, Summary
from cluster.planning.settings import EngineSettings, NetworkSettings, split
from cluster.planning.simulation import Simulation
from cluster.planning.step_time import DynamoPolynomial
from cluster.planning.trace import Trace
from cluster.pools.controller import PoolController
from routing.profile import Profile
from routing.rates import Rates
from tests.benchmarks.routing_dynamo import Replay, replay
from tests.benchmarks.routing_policies import ITL_TARGET_S, TTFT_TARGET_S, Policy

SLO = Slo(TTFT_TARGET_S, ITL_TARGET_S)
BLOCK_TOKENS = 64
DEVICE_BLOCKS = 16_384
RIDER_TOKENS = 256
SEED = 1
LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Topology:
    """How many workers of each kind; without prefill workers the others do everything."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}P{self.decode}D" if self.prefill else f"{self.decode} aggregated"


@dataclass(frozen=True, slots=True)
class Row:
    """What the table shows. `wall_s` alone depends on the machine."""

    policy: str
    topology: Topology
    speed: float
    requests: int
    reuse: float
    ttft_mean_s: float
    ttft_p99_s: float
    itl_p99_s: float
    good: int
    imbalance: float
    prediction_error: float | None
    wall_s: float


@dataclass(frozen=True, slots=True)
class Transfers:
    """What moving KV costs. Free is what Dynamo's replay assumes unless told otherwise."""

    bytes_per_token: int = 0
    transfer_bytes_per_s: float = 25e9
    load_bytes_per_s: float = 50e9


FREE = Transfers()


def engine(transfers: Transfers) -> EngineSettings:
    """Every worker's."""
    return EngineSettings(
        step_time=DynamoPolynomial(DEVICE_BLOCKS * BLOCK_TOKENS, rider_tokens=RIDER_TOKENS),
        block_size_tokens=BLOCK_TOKENS,
        device_blocks=DEVICE_BLOCKS,
        kv_bytes_per_token=transfers.bytes_per_token,
        load_bytes_per_s=transfers.load_bytes_per_s,
    )


def profile(transfers: Transfers) -> Profile:
    """What our router is told of these engines: straight lines through the polynomials of `DynamoPolynomial`."""
    return Profile(
        prefill_step_s=16.5e-3,
        prefill_token_s=18e-6,
        prefill_attention_s=0.0,
        chunk_tokens=8_192,
        decode_step_s=5.74e-3,
        decode_request_s=0.0,
        decode_context_token_s=54.01e-3 / (DEVICE_BLOCKS * BLOCK_TOKENS),
        max_running=256,
        kv_bytes_per_token=transfers.bytes_per_token,
        host_bytes_per_s=transfers.load_bytes_per_s,
        host_latency_s=0.0,
        remote_bytes_per_s=transfers.transfer_bytes_per_s,
        remote_latency_s=0.0,
    )


def simulated(policy: Policy, topology: Topology, speed: float, trace: Trace, transfers: Transfers) -> Row:
    """A policy in our simulator, with lending between the roles where it has settings for it. `trace` is at its own
    speed.
    """
    began = time.monotonic()
    network, rates = NetworkSettings(transfer_bytes_per_s=transfers.transfer_bytes_per_s), profile(transfers)
    cluster = split(topology.prefill, topology.decode, engine(transfers), network)
    simulation = Simulation(cluster, [Gateway(0, policy.mind(rates), random.Random(SEED))], trace.faster(speed))
    if policy.lends is not None:
        Lending(simulation, PoolController(policy.lends, Rates(rates)), LOOK_EVERY_S)
    summary = simulation.run().summary(SLO)
    return _row(policy.name, topology, speed, summary, time.monotonic() - began)


def _row(name: str, topology: Topology, speed: float, summary: Summary, wall_s: float) -> Row:
    return Row(
        policy=name,
        topology=topology,
        speed=speed,
        requests=summary.finished,
        reuse=summary.reuse,
        ttft_mean_s=summary.ttft_mean_s,
        ttft_p99_s=summary.ttft_p99_s,
        itl_p99_s=summary.itl_p99_s,
        good=summary.good,
        imbalance=summary.imbalance,
        prediction_error=summary.prediction_error or None,
        wall_s=wall_s,
    )


def replayed(mode: str, topology: Topology, speed: float, trace: Path, transfers: Transfers) -> Row:
    """Dynamo's replay of a trace file."""
    order = Replay(
        trace=str(trace),
        mode=mode,
        prefill=topology.prefill,
        decode=topology.decode,
        speed=speed,
        blocks=DEVICE_BLOCKS,
        block_size=BLOCK_TOKENS,
        ttft_ms=1000 * SLO.ttft_s,
        itl_ms=1000 * SLO.itl_s,
        bytes_per_token=transfers.bytes_per_token,
        transfer_bytes_per_s=transfers.transfer_bytes_per_s,
    )
    done = replay(order)
    return Row(
        policy=f"Dynamo {mode.replace('_', ' ')}",
        topology=topology,
        speed=speed,
        requests=done.requests,
        reuse=done.reuse,
        ttft_mean_s=done.ttft_mean_s,
        ttft_p99_s=done.ttft_p99_s,
        itl_p99_s=done.itl_p99_s,
        good=done.good,
        imbalance=done.imbalance,
        prediction_error=None,
        wall_s=done.wall_s,
    )
