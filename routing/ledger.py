"""What this gateway has sent and not yet got back: reserved work per replica.

Reports of load come late; what was placed since the last report is known only here. A reservation is a `Lease`. Its
prefill part may be given back early, the rest is released once.

Invariant: a replica's total is the sum of the parts of the open leases on it; replicas without parts are not kept.
"""

from dataclasses import dataclass

from routing.router import Decision, RouteRequest


@dataclass(frozen=True, slots=True)
class Reserved:
    """Work reserved on one replica. `requests` counts as engines do: one for each output that is decoded."""

    prefill_tokens: int = 0
    decode_tokens: int = 0
    requests: int = 0

    def __add__(self, other: "Reserved") -> "Reserved":
        return Reserved(
            self.prefill_tokens + other.prefill_tokens,
            self.decode_tokens + other.decode_tokens,
            self.requests + other.requests,
        )

    def __sub__(self, other: "Reserved") -> "Reserved":
        return Reserved(
            self.prefill_tokens - other.prefill_tokens,
            self.decode_tokens - other.decode_tokens,
            self.requests - other.requests,
        )


NOTHING = Reserved()


@dataclass(frozen=True, slots=True)
class Lease:
    """One request's claim on its replicas. Numbers are never used twice."""

    number: int
    decode: str
    prefill: str | None


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """A truthful snapshot. `released_twice` counts releases of leases that were not open: each is a bug of a caller."""

    open_leases: int
    reserved: Reserved
    replicas: int
    released: int
    released_twice: int


class Ledger:
    """Owns every open lease and the totals per replica."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[str, Reserved]] = {}
        self._totals: dict[str, Reserved] = {}
        self._next = 0
        self._released = 0
        self._released_twice = 0

    def reserve(self, decision: Decision, request: RouteRequest) -> Lease:
        """Reserve the request's work where the decision places it."""
        lease = Lease(self._next, decision.decode, decision.prefill)
        self._next += 1
        self._parts[lease.number] = {}
        for replica_id, part in _parts(decision, request).items():
            self._set(lease.number, replica_id, part)
        return lease

    def prefill_done(self, lease: Lease) -> None:
        """The prompt is computed: give back what was reserved for it. Later calls change nothing."""
        parts = self._parts.get(lease.number, {})
        if lease.prefill is not None:
            if lease.prefill in parts:
                self._set(lease.number, lease.prefill, NOTHING)
        elif lease.decode in parts:
            part = parts[lease.decode]
            self._set(lease.number, lease.decode, Reserved(0, part.decode_tokens, part.requests))

    def release(self, lease: Lease) -> None:
        """Give everything back. A second release changes nothing and is counted."""
        if lease.number not in self._parts:
            self._released_twice += 1
            return
        for replica_id in list(self._parts[lease.number]):
            self._set(lease.number, replica_id, NOTHING)
        del self._parts[lease.number]
        self._released += 1

    def load(self, replica_id: str) -> Reserved:
        """What is reserved on a replica now."""
        return self._totals.get(replica_id, NOTHING)

    def statistics(self) -> LedgerStatistics:
        """A snapshot, O(replicas)."""
        return LedgerStatistics(
            open_leases=len(self._parts),
            reserved=sum(self._totals.values(), NOTHING),
            replicas=len(self._totals),
            released=self._released,
            released_twice=self._released_twice,
        )

    def check(self) -> None:
        """Assert the invariant, and that no caller released twice."""
        totals: dict[str, Reserved] = {}
        for parts in self._parts.values():
            for replica_id, part in parts.items():
                assert part != NOTHING, f"an empty part is kept for {replica_id}"
                assert min(part.prefill_tokens, part.decode_tokens, part.requests) >= 0, f"negative part {part}"
                totals[replica_id] = totals.get(replica_id, NOTHING) + part
        assert totals == self._totals, f"totals {self._totals} are not the sum of the leases {totals}"
        assert self._released + len(self._parts) == self._next, "a lease was lost"
        assert self._released_twice == 0, f"{self._released_twice} leases were released twice"

    def _set(self, number: int, replica_id: str, part: Reserved) -> None:
        parts = self._parts[number]
        total = self.load(replica_id) - parts.pop(replica_id, NOTHING) + part
        if part != NOTHING:
            parts[replica_id] = part
        if total != NOTHING:
            self._totals[replica_id] = total
        else:
            self._totals.pop(replica_id, None)


def _parts(decision: Decision, request: RouteRequest) -> dict[str, Reserved]:
    decode = Reserved(0, request.max_tokens * request.outputs, request.outputs)
    prefill = Reserved(request.prompt_tokens)
    if decision.prefill is None:
        return {decision.decode: prefill + decode}
    return {decision.prefill: prefill + Reserved(requests=1), decision.decode: decode}
