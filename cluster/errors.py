"""Every error a request can end with: whose fault it is, its HTTP status, whether trying again elsewhere is safe.

    BatonError
    ├── InvalidRequest        the client's    400   not retried
    ├── Overloaded            nobody's        429   the client may, after `retry_after_s`
    ├── NoReplicaReady        ours            503   the client may
    ├── ReplicaLost           ours            503   by the coordinator, elsewhere
    ├── ReplicaDraining       nobody's        503   by the coordinator, elsewhere, at no attempt's cost
    ├── CannotContinue        ours            503   not retried
    ├── EngineFailed          ours            500   by the coordinator, elsewhere
    ├── DeadlineExceeded      ours            504   not retried
    └── ProtocolViolation     the peer's      —     its connection is closed

Foreign exceptions are mapped to these only in the adapters (engines, data plane, gateway).
"""

from typing import ClassVar


class BatonError(Exception):
    """Base: `status` is the HTTP answer, `retryable` whether another replica may be tried without asking the client."""

    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    retry_after_s: float | None = None


class InvalidRequest(BatonError):
    """The request can never be answered as it is."""

    status = 400


class Overloaded(BatonError):
    """Too much is in flight; come back after `retry_after_s` seconds."""

    status = 429

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NoReplicaReady(BatonError):
    """No worker can take the request now."""

    status = 503
    retry_after_s = 1.0


class ReplicaLost(BatonError):
    """The worker or its connection is gone."""

    status = 503
    retryable = True
    retry_after_s = 1.0


class ReplicaDraining(BatonError):
    """The worker goes away, or is taken out of service, and has given the work back."""

    status = 503
    retryable = True
    retry_after_s = 1.0


class CannotContinue(BatonError):
    """A stream lost its worker, and no other can go on exactly where it ended."""

    status = 503


class EngineFailed(BatonError):
    """The engine died or cannot step."""

    status = 500
    retryable = True


class DeadlineExceeded(BatonError):
    """The request took longer than `timeouts.request_s`, or its prompt takes longer than its client waits."""

    status = 504


class ProtocolViolation(BatonError):
    """A peer sent what the protocol does not allow."""
