"""What a store is told when it starts. Independent of `configs`: `cluster` fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvtransfer.eviction.choice import PolicyName
from kvtransfer.framing import DEFAULT_MAX_FRAME_BYTES
from kvtransfer.tenant import Tenant


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Files below the arena: in a folder below `path`, at most `bytes` of them."""

    path: str
    bytes: int
    max_waiting_writes: int = 64  # no more blocks leave for the disk while so many wait
    max_reads: int = 256
    recall_s: float = 0.25  # the longest a pin waits for blocks on disk


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`socket_name` names a Unix socket in the abstract namespace (without the leading zero byte)."""

    arena_bytes: int
    socket_name: str
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_handoffs: int = 65_536
    handoff_ttl_s: float = 300.0
    connect_s: float = 5.0  # to greet
    max_wait_s: float = 3_600.0  # the longest deadline a wait may ask for
    max_waits: int = 8_192  # waits of one connection at once
    max_connections: int = 4_096
    eviction: PolicyName = "prefix_aware"
    high_watermark: float = 1.0  # with more of the slots than this in use, blocks are evicted ...
    low_watermark: float = 1.0  # ... until no more than this are
    disk: DiskSettings | None = None
    tenant_weights: Mapping[Tenant, float] = field(default_factory=dict)  # 1.0 for others
    sweep_s: float = 1.0  # between two looks for hand-offs past their time
