"""What a simulated cluster is built from. Immutable."""

from dataclasses import dataclass

from cluster.planning.step_time import StepTime
from routing.fleet import Role


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One worker's engine. `max_batched_tokens` bounds a step, decoding requests included, as in vLLM.

    Without `host_blocks` evicted blocks are lost; with them a node's memory keeps that many of those its engines have
    computed. `load_latency_s` and `load_bytes_per_s` are from host memory to the device.
    """

    step_time: StepTime
    block_size_tokens: int = 64
    device_blocks: int = 16_384
    max_batched_tokens: int = 8_192
    max_running: int = 256
    max_model_len: int = 131_072
    kv_bytes_per_token: int = 131_072
    load_bytes_per_s: float = 50e9
    load_latency_s: float = 0.0
    host_blocks: int = 0

    def load_s(self, blocks: int) -> float:
        """Seconds to bring blocks from host memory to the device."""
        load_bytes = blocks * self.block_size_tokens * self.kv_bytes_per_token
        return self.load_latency_s + load_bytes / self.load_bytes_per_s


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker. Workers with the same `node_id` share a host tier."""

    replica_id: str
    role: Role
    node_id: str
    engine: EngineSettings


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """What lies between the parts. `transfer_bytes_per_s` is what one node takes in from all others; what comes last
    of a hand-off is `transfer_latency_s` on its way besides.

    `event_delay_s` passes between the end of a step and the gateways' knowledge of what it changed in the cache;
    workers report their load every `report_period_s`.
    """

    transfer_bytes_per_s: float = 25e9
    event_delay_s: float = 0.001
    report_period_s: float = 0.05
    transfer_latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Everything. `max_tokens` is what each client says it wants at most: routers do not know the real length."""

    workers: tuple[WorkerSettings, ...]
    network: NetworkSettings
    max_tokens: int = 2_000


def aggregated(count: int, engine: EngineSettings, network: NetworkSettings | None = None) -> ClusterSettings:
    """`count` workers that do everything."""
    return split(0, count, engine, network)


def split(prefill: int, decode: int, engine: EngineSettings, network: NetworkSettings | None = None) -> ClusterSettings:
    """`prefill` workers that compute prompts and `decode` workers, each on a node of its own."""
    roles = [(Role.PREFILL, "p", prefill), (Role.DECODE, "d", decode)]
    workers = [
        WorkerSettings(f"{letter}{i}", role, f"node-{letter}{i}", engine)
        for role, letter, count in roles
        for i in range(count)
    ]
    return ClusterSettings(tuple(workers), network or NetworkSettings())
