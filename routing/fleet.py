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
    """A worker's own report: the work of all gateways."""

    running: int = 0
    waiting: int = 0
    held: int = 0
    queued_prefill_tokens: int = 0
    kv_usage: float = 0.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One worker as a candidate."""

    replica_id: str
    role: Role
    node_id: str
    kv_fingerprint: str
    block_size_tokens: int
    max_model_len: int
    ready: bool = True
    load: ReplicaLoad = field(default_factory=ReplicaLoad)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All replicas by id."""

    replicas: Mapping[str, Replica]

    def ready(self, role: Role) -> list[Replica]:
        """The replicas of a role that may be given work, in a stable order."""
        return [
            self.replicas[i] for i in sorted(self.replicas) if self.replicas[i].role is role and self.replicas[i].ready
        ]
