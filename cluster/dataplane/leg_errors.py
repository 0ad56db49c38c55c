"""What a worker says of a leg that failed, as the gateway's error."""

from cluster.dataplane.frames import FailureKind
from cluster.errors import (
    BatonError,
    CannotContinue,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    ReplicaDraining,
    ReplicaLost,
)

ERRORS: dict[FailureKind, type[BatonError]] = {
    "invalid": InvalidRequest,
    "engine": EngineFailed,
    "unavailable": ReplicaLost,
    "deadline": DeadlineExceeded,
    "draining": ReplicaDraining,
    "cannot_continue": CannotContinue,
}
