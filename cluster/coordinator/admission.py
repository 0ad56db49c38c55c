"""Who may start: a bound on the outputs in flight, and an honest guess of when to come back."""

from cluster.errors import InvalidRequest, Overloaded

_SMOOTHING = 0.1  # weight of the newest service time in the mean
_SHORTEST_S, _LONGEST_S = 1.0, 60.0


class Admission:
    """Counts outputs in flight. Invariant: `0 <= in_flight <= limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0
        self._service_s: float | None = None

    @property
    def in_flight(self) -> int:
        """Outputs of all requests that have entered and not left."""
        return self._in_flight

    @property
    def service_s(self) -> float | None:
        """Mean time a finished request took, the recent ones weighing most. None before the first."""
        return self._service_s

    @property
    def retry_after_s(self) -> float:
        """When half of what is in flight has probably ended: half the mean service time, within a minute."""
        return min(_LONGEST_S, max(_SHORTEST_S, (self._service_s or 0.0) / 2))

    def admit(self, outputs: int) -> None:
        """Return when `outputs` more may enter. Raises `Overloaded`, or `InvalidRequest` if they never may."""
        if outputs > self._limit:
            raise InvalidRequest(f"{outputs} outputs are more than this server computes at once ({self._limit})")
        if self._in_flight + outputs > self._limit:
            raise Overloaded(
                f"{self._in_flight} outputs are in flight, at most {self._limit} may be", self.retry_after_s
            )

    def enter(self, outputs: int) -> None:
        """Admit and count them. Raises what `admit` raises."""
        self.admit(outputs)
        self._in_flight += outputs

    def leave(self, outputs: int) -> None:
        """They are over, however they ended."""
        self._in_flight -= outputs
        assert self._in_flight >= 0, "more left than entered"

    def finished(self, service_s: float) -> None:
        """A request ended well after `service_s` seconds."""
        before = self._service_s
        self._service_s = service_s if before is None else before + _SMOOTHING * (service_s - before)
