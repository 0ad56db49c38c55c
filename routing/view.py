"""The fleet as the router last looked at it: both pools, kept up to date with reports, rates and other gateways.

Other gateways are seen through reports only, which come late. Between two reports of a replica the others are taken to
place what this gateway places there, in proportion to their share of all requests: they see the same fleet, so they
choose the same replicas. Without that, gateways that get bursts at the same time all send them to the same place.
"""

from math import inf

import numpy as np

from routing.books import Books, Column
from routing.fleet import Fleet, Replica, Role
from routing.matches import Matches, matched, matches
from routing.pool import Pool, Seen, pool_of
from routing.rates import Rates
from routing.router import RouteRequest

_REFRESH_S = 0.1
"""How long corrected rates may be out of date in a fleet that reports nothing."""

_SHARE_WEIGHT = 0.05
_MOST_SHARE = 16.0


class View:
    """Owns the columns of the ready replicas of the latest fleet: `everyone`, prefill replicas first, and both parts.

    `share` is how many requests the other gateways have for each of this one's: both are averaged over reports before
    they are divided, because gateways are seldom busy at the same moment.
    """

    def __init__(self, rates: Rates, books: Books) -> None:
        profile = rates.profile
        self.remote_latency_s = profile.remote_latency_s
        self.remote_token_s = profile.kv_bytes_per_token / profile.remote_bytes_per_s
        self.share = self._others = self._own = 0.0
        self._rates = rates
        self._books = books
        self._seen: dict[str, Seen] = {}
        self._fleet = Fleet({})
        self._make(self._fleet, 0.0)

    def look(self, fleet: Fleet, now: float) -> None:
        """Bring everything up to date with `fleet`, the rates, and what was placed."""
        stale = self._rates_version != self._rates.version and now - self._made_at >= _REFRESH_S
        if stale or (fleet is not self._fleet and _shape(fleet) != self._shape):
            self._make(fleet, now)
            self._learn_share()
        elif fleet is not self._fleet:
            self._fleet = fleet
            self._seen = {replica_id: self._see(replica) for replica_id, replica in fleet.replicas.items()}
            self.everyone.report(self._seen)
            self._learn_share()
        if self._books_version != self._books.version:
            self._find_rows()
        if self.share:
            self.everyone.expect(self._books, self.share)

    def matches(self, request: RouteRequest) -> Matches:
        """Which replicas are fit for a request. Nearly always all are, which is known already."""
        prompt = request.prompt_tokens
        most = prompt + max(1, request.max_tokens)
        if request.may_disaggregate and not request.exclude and self._largest_block < prompt and most <= self._room:
            return self._all_fit
        return matches(self.prefills, self.decodes, request)

    def _make(self, fleet: Fleet, now: float) -> None:
        """From nothing: other replicas, or other rates."""
        self._seen = {replica_id: self._see(replica) for replica_id, replica in fleet.replicas.items()}
        prefills, decodes = fleet.ready(Role.PREFILL), fleet.ready(Role.DECODE)
        self.everyone = pool_of([*prefills, *decodes], self._seen, self._rates, self._books)
        self.prefills: Pool = self.everyone.part(slice(len(prefills)))
        self.decodes: Pool = self.everyone.part(slice(len(prefills), None))
        self._room = min(self.everyone.max_model_len.tolist(), default=0)
        self._largest_block = max(self.everyone.block_sizes, default=0)
        everyone = np.ones(len(self.everyone), dtype=np.bool_)
        sources, seats = everyone[: len(prefills)], everyone[len(prefills) :]
        self._all_fit = matched(self.prefills, self.decodes, sources, seats, inf)
        self._fleet, self._shape, self._made_at = fleet, _shape(fleet), now
        self._rates_version, self._books_version = self._rates.version, self._books.version

    def _see(self, replica: Replica) -> Seen:
        load, known = replica.load, self._seen.get(replica.replica_id)
        if known is not None and (known.load is load or known.load == load):
            return known
        own = self._books.columns[:, self._books.rows([replica.replica_id])[0]].tolist()
        others_blocks = max(0.0, load.kv_usage * replica.kv_blocks - own[Column.BLOCKS])
        return Seen(load, others_blocks, own[Column.GIVEN_REQUESTS], own[Column.GIVEN_PREFILL_S])

    def _find_rows(self) -> None:
        self.everyone.rows[:] = self._books.rows(self.everyone.ids)
        self._books_version = self._books.version

    def _learn_share(self) -> None:
        others = float(self.decodes.reported_requests.sum())
        own = float(self._books.columns[Column.REQUESTS, self.decodes.rows].sum())
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
            replica.kv_fingerprint,
            replica.block_size_tokens,
            replica.max_model_len,
            replica.kv_blocks,
        )
        for replica in fleet.replicas.values()
    ]
