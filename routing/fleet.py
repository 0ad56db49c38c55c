"""What the router knows when it decides: values only, a snapshot of the fleet at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Role(Enum):
    """What the router may send to a replica."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """A worker's own report: the work of all gateways, and what of it is not this gateway's.

    `others_requests` (engine requests in flight) and `others_prefill_tokens` (prompt tokens without a first token yet)
    belong to other gateways: added to what this gateway's ledger holds, nothing is counted twice.
    """

    running: int = 0
    waiting: int = 0
    held: int = 0
    queued_prefill_tokens: int = 0
    kv_usage: float = 0.0
    others_requests: int = 0
    others_prefill_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """One worker as a candidate. `kv_blocks` is its device's capacity in blocks, 0 when unknown. Nodes of one `zone`
    are near each other.

    Replicas exchange blocks where their `kv_fingerprint` is the same, and go on with each other's answers where their
    `model_identity` is.
    """

    replica_id: str
    role: Role
    node_id: str
    kv_fingerprint: str
    block_size_tokens: int
    max_model_len: int
    kv_blocks: int = 0
    ready: bool = True
    load: ReplicaLoad = field(default_factory=ReplicaLoad)
    model_identity: str = ""
    zone: str = ""

    @property
    def store(self) -> str:
        """Names the store that it shares."""
        return store_of(self.node_id, self.kv_fingerprint)


def store_of(node_id: str, kv_fingerprint: str) -> str:
    """Names the store of one kind of blocks on a node: the host tier of the replicas there that can use them."""
    return f"{node_id} {kv_fingerprint}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All replicas by id."""

    replicas: Mapping[str, Replica]

    def ready(self, role: Role) -> list[Replica]:
        """The replicas of a role that may be given work, in a stable order."""
        return [
            self.replicas[i] for i in sorted(self.replicas) if self.replicas[i].role is role and self.replicas[i].ready
        ]
