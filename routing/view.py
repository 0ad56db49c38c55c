"""The fleet as the router last looked at it: both pools, kept up to date with reports, rates and other gateways.

Other gateways are seen through reports only, which come late. Between two reports of a replica the others are taken to
place what this gateway places there, in proportion to their share of all requests: they see the same fleet, so they
choose the same replicas. Without that, gateways that get bursts at the same time all send them to the same place.
"""

from routing.books import Books
from routing.fleet import Fleet, Replica, Role
from routing.pool import Report, pool_of, reports_of
from routing.rates import Rates

_REFRESH_S = 0.1
"""How long corrected rates may be out of date in a fleet that reports nothing."""

_SHARE_WEIGHT = 0.05
_MOST_SHARE = 16.0


class View:
    """Owns the tables of the ready replicas of the latest fleet.

    `share` is how many requests the other gateways have for each of this one's: both are averaged over reports before
    they are divided, because gateways are seldom busy at the same moment. `far_factor` is how many times longer blocks
    take between zones than within one.
    """

    def __init__(self, rates: Rates, books: Books, far_factor: float) -> None:
        self.share = self._others = self._own = 0.0
        self._rates = rates
        self._books = books
        self._far_factor = far_factor
        self._fleet = Fleet({})
        self._reports: dict[str, Report] = {}
        self._books_version = books.version
        self._make(self._fleet, 0.0)

    def look(self, fleet: Fleet, now: float) -> None:
        """Bring everything up to date with `fleet`, the rates, and what was placed."""
        stale = self._rates_version != self._rates.version and now - self._made_at >= _REFRESH_S
        if stale or (fleet is not self._fleet and _shape(fleet) != self._shape):
            self._make(fleet, now)
            self._learn_share()
        elif fleet is not self._fleet:
            self._see(fleet)
            self.pool.reports = reports_of(self.pool.ids, self._reports)
            self._learn_share()
        if self._books_version != self._books.version:
            self.pool.rows = self._books.rows(self.pool.ids)
            self._books_version = self._books.version

    def _make(self, fleet: Fleet, now: float) -> None:
        """From nothing: other replicas, or other rates."""
        self._see(fleet)
        ready = [*fleet.ready(Role.PREFILL), *fleet.ready(Role.DECODE)]
        others = [replica for replica in fleet.replicas.values() if not replica.ready]
        self.pool = pool_of(ready, self._reports, self._rates, self._books, self._far_factor, others)
        self._shape, self._made_at = _shape(fleet), now
        self._rates_version, self._books_version = self._rates.version, self._books.version

    def _see(self, fleet: Fleet) -> None:
        """Each replica's report and, where it is new, what of this gateway's work is in it."""
        known, self._fleet = self._fleet.replicas, fleet
        self._reports = {
            replica_id: self._reports[replica_id]
            if replica_id in known and known[replica_id].load == replica.load
            else self._report(replica)
            for replica_id, replica in fleet.replicas.items()
        }

    def _report(self, replica: Replica) -> Report:
        load, booked = replica.load, self._books.read(replica.replica_id)
        return Report(
            requests=load.others_requests,
            prefill_tokens=load.others_prefill_tokens,
            blocks=max(0.0, load.kv_usage * replica.kv_blocks - booked.blocks),
            given_requests=booked.given_requests,
            given_prefill_s=booked.given_prefill_s,
        )

    def _learn_share(self) -> None:
        pool = self.pool
        decodes = pool.members["decodes"]
        others = float((pool.reports["requests"] * decodes).sum())
        own = float((self._books.table["requests"][pool.rows] * decodes).sum())
        if others or own:
            self._others += _SHARE_WEIGHT * (others - self._others)
            self._own += _SHARE_WEIGHT * (own - self._own)
            self.share = min(self._others / self._own, _MOST_SHARE) if self._own else _MOST_SHARE


def _shape(fleet: Fleet) -> list[tuple[object, ...]]:
    """What of a fleet does not change from one report to the next."""
    return [
        (
            replica.replica_id,
            replica.role,
            replica.ready,
            replica.node_id,
            replica.zone,
            replica.kv_fingerprint,
            replica.block_size_tokens,
            replica.max_model_len,
            replica.kv_blocks,
        )
        for replica in fleet.replicas.values()
    ]
