"""What a store is told when it starts. Independent of `configs`: `cluster` fills it in."""

from dataclasses import dataclass

from kvtransfer.eviction.choice import PolicyName
from kvtransfer.framing import DEFAULT_MAX_FRAME_BYTES


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
    sweep_s: float = 1.0  # between two looks for hand-offs past their time
