"""What this gateway has sent and not yet got back: reserved work per replica, and prompts promised to the index.

Reports of load come late; what was placed since the last report is known only here. A reservation is a `Lease`. Its
prefill part may be given back early, the rest is released once. A prompt that is being computed is promised to the
index as blocks of the replica that computes it; the promise is taken back when the lease ends before the prompt does.
What has to come from elsewhere first is not promised: an engine that is given an equal prompt meanwhile computes it.
When a prefill replica is done, the same is promised of the decode replica, which fetches the blocks then.

`now` is in seconds, monotonic; a caller that leaves it out does not know, and the latest that was told stands.

Invariant: a replica's account is the sum of the parts of the open leases on it; replicas without parts have none. What
else is kept, what each replica was given so far, is bounded by `_REMEMBERED`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from routing.account import IDLE, NEVER, NOTHING, Account, Given, Reserved
from routing.books import Books
from routing.router import Decision, RouteRequest, Work

__all__ = ["NOTHING", "Account", "Lease", "Ledger", "LedgerStatistics", "Promises", "Reserved"]

_REMEMBERED = 8192
_PROMISE_GRACE_S = 1.0


class Promises(Protocol):
    """What the ledger tells the index: see `routing.index.KvIndex`."""

    def promise(self, replica_id: str, keys: Sequence[int], until: float) -> int: ...

    def retract(self, promise: int) -> None: ...


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


class _Open:
    """An open lease. `computing` and `decoding` name the replicas that still owe each part, None when none does."""

    __slots__ = ("computing", "decoding", "outputs", "promise", "promise_s", "work")

    def __init__(self, decision: Decision, outputs: int, work: Work) -> None:
        self.computing: str | None = decision.prefill or decision.decode
        self.decoding: str | None = decision.decode
        self.outputs = outputs
        self.work = work
        self.promise: int | None = None
        self.promise_s = _PROMISE_GRACE_S + (2 * decision.predicted.ttft_s if decision.predicted else 0.0)


class Ledger:
    """Owns every open lease and the accounts of their replicas. `books` shows the accounts to a router."""

    def __init__(self, index: Promises | None = None) -> None:
        self._index = index
        self._open: dict[int, _Open] = {}
        self._accounts: dict[str, Account] = {}
        self._given: dict[str, Given] = {}
        self.books = Books()
        self._next = 0
        self._now: float | None = None
        self._released = 0
        self._released_twice = 0

    @property
    def accounts(self) -> Mapping[str, Account]:
        """The account of every replica with reserved work, by replica id; for reading only."""
        return self._accounts

    def reserve(self, decision: Decision, request: RouteRequest, now: float | None = None) -> Lease:
        """Reserve the request's work where the decision places it, and promise its prompt."""
        self._tell(now)
        lease = Lease(self._next, decision.decode, decision.prefill)
        self._next += 1
        work = decision.work or _unpredicted(request)
        self._open[lease.number] = entry = _Open(decision, request.outputs, work)
        computing = decision.prefill or decision.decode
        account = self._account(computing)
        account.enqueue(lease.number, work.prefill_tokens, work.prefill_s, self._now)
        if decision.prefill is not None:
            account.requests += 1
            self._give(computing, account, 0, work.prefill_s)
            account = self._account(decision.decode)
        account.add_decoding(request.outputs, work.decode_tokens, work.context_tokens, work.blocks)
        self._give(decision.decode, account, request.outputs, work.prefill_s if decision.prefill is None else 0.0)
        if decision.fetch is None and decision.coming is None:
            self._promise(entry, computing, work.prefill_keys)
        return lease

    def prefill_done(self, lease: Lease, now: float | None = None) -> None:
        """The prompt is computed: give back what was reserved for it. Later calls change nothing."""
        self._tell(now)
        entry = self._open.get(lease.number)
        if entry is None or entry.computing is None:
            return
        self._end_prefill(lease.number, entry)
        entry.promise = None  # kept: the events that say the same may be under way
        if lease.prefill is not None and entry.decoding is not None:
            self._promise(entry, lease.decode, entry.work.decode_keys)
            entry.promise = None

    def release(self, lease: Lease, now: float | None = None) -> None:
        """Give everything back. A second release changes nothing and is counted."""
        self._tell(now)
        entry = self._open.pop(lease.number, None)
        if entry is None:
            self._released_twice += 1
            return
        if self._index is not None and entry.promise is not None:
            self._index.retract(entry.promise)
        self._end_prefill(lease.number, entry)
        self._end_decode(entry)
        self._released += 1

    def drop(self, replica_id: str) -> None:
        """The replica is gone: nothing is reserved there any more. Its leases stay open until they are released."""
        self._given.pop(replica_id, None)
        self.books.free(replica_id)
        if self._accounts.pop(replica_id, None) is None:
            return
        for entry in self._open.values():
            if entry.computing == replica_id:
                entry.computing = None
            if entry.decoding == replica_id:
                entry.decoding = None

    def load(self, replica_id: str) -> Reserved:
        """What is reserved on a replica now."""
        return self._accounts.get(replica_id, IDLE).reserved()

    def statistics(self) -> LedgerStatistics:
        """A snapshot, O(replicas)."""
        return LedgerStatistics(
            open_leases=len(self._open),
            reserved=sum((account.reserved() for account in self._accounts.values()), NOTHING),
            replicas=len(self._accounts),
            released=self._released,
            released_twice=self._released_twice,
        )

    def check(self) -> None:
        """Assert the invariant, and that no caller released twice."""
        expected: dict[str, Account] = {}
        for number, entry in self._open.items():
            work = entry.work
            if entry.computing is not None:
                account = expected.setdefault(entry.computing, Account())
                account.enqueue(number, work.prefill_tokens, work.prefill_s, None)
                account.requests += entry.computing != entry.decoding
            if entry.decoding is not None:
                account = expected.setdefault(entry.decoding, Account())
                account.add_decoding(entry.outputs, work.decode_tokens, work.context_tokens, work.blocks)
        assert expected.keys() == self._accounts.keys(), f"accounts {list(self._accounts)}, leases on {list(expected)}"
        for replica_id, account in self._accounts.items():
            account.check(expected[replica_id], replica_id)
            booked, expected_booked = self.books.read(replica_id), account.booked(self._given[replica_id])
            assert booked == expected_booked, f"{replica_id}: booked {booked}, not {expected_booked}"
        assert self._released + len(self._open) == self._next, "a lease was lost"
        assert self._released_twice == 0, f"{self._released_twice} leases were released twice"

    def _tell(self, now: float | None) -> None:
        if now is not None:
            self._now = now

    def _account(self, replica_id: str) -> Account:
        """The account of a replica that is given work now."""
        account = self._accounts.get(replica_id)
        if account is None:
            account = self._accounts[replica_id] = Account()
        return account

    def _give(self, replica_id: str, account: Account, requests: int, prefill_s: float) -> None:
        """The account of a replica was given work just now."""
        was = self._given.pop(replica_id, None)
        if was is None:
            was = NEVER
            self._forget_the_oldest()
        given = Given(self._next, was.requests + requests, was.prefill_s + prefill_s)
        self._given[replica_id] = given  # the latest last
        self.books.write(replica_id, account.booked(given))

    def _forget_the_oldest(self) -> None:
        if len(self._given) >= _REMEMBERED:
            oldest = next(iter(self._given))
            if oldest not in self._accounts:
                del self._given[oldest]
                self.books.free(oldest)

    def _promise(self, entry: _Open, replica_id: str, keys: Sequence[int]) -> None:
        if self._index is not None and keys and self._now is not None:
            entry.promise = self._index.promise(replica_id, keys, self._now + entry.promise_s)

    def _end_prefill(self, number: int, entry: _Open) -> None:
        replica_id, entry.computing = entry.computing, None
        if replica_id is None:
            return
        account = self._accounts[replica_id]
        account.dequeue(number, self._now)
        if replica_id != entry.decoding:
            account.requests -= 1
        self._changed(replica_id, account)

    def _end_decode(self, entry: _Open) -> None:
        replica_id, entry.decoding = entry.decoding, None
        if replica_id is None:
            return
        account, work = self._accounts[replica_id], entry.work
        account.add_decoding(-entry.outputs, -work.decode_tokens, -work.context_tokens, -work.blocks)
        self._changed(replica_id, account)

    def _changed(self, replica_id: str, account: Account) -> None:
        """An open lease counts as a request wherever it has a part: without requests there is none."""
        self.books.write(replica_id, account.booked(self._given[replica_id]))
        if account.requests == 0:
            del self._accounts[replica_id]


def _unpredicted(request: RouteRequest) -> Work:
    """What a placement without predictions reserves: all it may need."""
    return Work(request.prompt_tokens, 0.0, request.max_tokens * request.outputs, request.prompt_tokens, 0)
