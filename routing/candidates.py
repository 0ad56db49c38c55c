"""The placements worth considering for one request.

Every fit decode replica may compute the prompt itself. Of the pairs of a prefill and a decode replica only those are
looked at that can be cheapest: a pair costs what its halves cost, and the transfer between their nodes. So the cheapest
few of each half, and partners on the same node, are enough, and a decision is linear in the size of the fleet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from routing.books import Floats
from routing.halves import Halves, Seats, Sources
from routing.pool import Pool
from routing.router import Rng, RouteRequest
from routing.ties import TOLERANCE, cheapest, in_order
from routing.view import View

_SHORTLIST = 2
_SAME_VIOLATION = 0.01


class Option(NamedTuple):
    """A placement: places in the pools, `source` None when the decode replica computes the prompt itself.

    Until the first token: `queue_s` before the prompt is computed and for the decode replica's own queue and step,
    `compute_s`, `load_s` of blocks from stores, and `first_step_s` after a hand-off.
    """

    cost_s: float
    source: int | None
    seat: int
    queue_s: float
    compute_s: float
    load_s: float
    first_step_s: float
    turn: float

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.queue_s + self.compute_s + self.load_s + self.first_step_s


class First(NamedTuple):
    """A prefill replica on the shortlist, out of the columns of `Sources`."""

    place: int
    node: int
    cost_s: float
    queue_s: float
    compute_s: float
    load_s: float
    done_s: float
    turn: float


class Second(NamedTuple):
    """A decode replica on the shortlist, out of the columns of `Seats`; `far_tokens` are not even on its node."""

    place: int
    node: int
    cost_s: float
    queue_s: float
    load_s: float
    first_step_s: float
    far_tokens: float
    turn: float


class Found(NamedTuple):
    """What a search found: the options, the best first; none when no decode replica is fit."""

    sources: Sources
    seats: Seats
    options: list[Option]


@dataclass(frozen=True, slots=True)
class Search:
    """One look at the fleet for one request. Of lone decode replicas the `alone` best are looked at."""

    request: RouteRequest
    view: View
    halves: Halves
    rng: Rng | None
    alone: int = _SHORTLIST

    def found(self) -> Found:
        """Constraints are violated as little as can be."""
        matches = self.view.matches(self.request)
        sources, seats = self.halves.sources(), self.halves.seats(matches)
        unfit = _least_violating(seats, matches.seats)
        if not len(unfit) or unfit[unfit.argmin()] == inf:
            return Found(sources, seats, [])
        options = self._alone(seats, unfit)
        for partners in matches.partners:
            options += self._pairs(
                sources, seats, sources.cost_s + partners.sources, seats.cost_s + partners.seats + unfit
            )
        return Found(sources, seats, self._ordered(options))

    def _alone(self, seats: Seats, unfit: Floats) -> list[Option]:
        """Decode replicas that compute the prompt themselves."""
        cost_s = seats.alone_s + unfit
        best = _lone(seats, int(cost_s.argmin()))
        at = cheapest(cost_s, TOLERANCE * best.ttft_s, seats.turn, self.rng, self.alone)
        return [_lone(seats, place) for place in at]

    def _pairs(self, sources: Sources, seats: Seats, source_s: Floats, seat_s: Floats) -> list[Option]:
        """The best of each half, and where they are apart also partners on one node. The unfit cost infinitely much."""
        if seat_s[seat_s.argmin()] == inf:
            return []
        tolerance_s = TOLERANCE * float(sources.done_s[source_s.argmin()])
        firsts = [_first(sources, at) for at in cheapest(source_s, tolerance_s, sources.turn, self.rng, _SHORTLIST)]
        seconds = [self._second(seats, at) for at in cheapest(seat_s, tolerance_s, seats.turn, self.rng, _SHORTLIST)]
        options = [self._pair(first, second) for first in firsts for second in seconds]
        if firsts[0].node != seconds[0].node:
            near_seats = [(first, _cheapest_on(first.node, seats.pool, seat_s, seconds)) for first in firsts]
            near_sources = [(second, _cheapest_on(second.node, sources.pool, source_s, firsts)) for second in seconds]
            options += [self._pair(first, self._second(seats, at)) for first, at in near_seats if at is not None]
            options += [self._pair(_first(sources, at), second) for second, at in near_sources if at is not None]
        return options

    def _second(self, seats: Seats, place: int) -> Second:
        pool = seats.pool
        size = pool.block_size.item(place)
        known = max(seats.device.item(place), size * self.halves.on_node(pool, place))
        return Second(
            place,
            pool.nodes.item(place),
            seats.cost_s.item(place),
            seats.queue_s.item(place),
            seats.load_s.item(place),
            seats.first_step_s.item(place),
            (self.request.prompt_tokens - 1) // size * size - known,
            seats.turn.item(place),
        )

    def _pair(self, first: First, second: Second) -> Option:
        """Both halves and what lies between them: a pull that overlaps with prefill, but for its last chunk."""
        transfer_s, far = 0.0, second.far_tokens
        if first.node != second.node and far > 0:
            token_s = self.view.remote_token_s
            last_s = min(far, self.view.prefills.chunk_tokens) * token_s
            transfer_s = self.view.remote_latency_s + max(last_s, far * token_s - first.compute_s)
        wait_s = max(0.0, second.queue_s - first.done_s - transfer_s)
        return Option(
            first.cost_s + second.cost_s + wait_s + transfer_s,
            first.place,
            second.place,
            first.queue_s + wait_s,
            first.compute_s,
            first.load_s + transfer_s + second.load_s,
            second.first_step_s,
            max(first.turn, second.turn),
        )

    def _ordered(self, options: list[Option]) -> list[Option]:
        """The cheapest first. A pair's turn is that of the half that was given work last."""
        costs = [option.cost_s for option in options]
        tolerance_s = TOLERANCE * options[costs.index(min(costs))].ttft_s
        return [
            options[place] for place in in_order(costs, tolerance_s, [o.turn for o in options], self.rng, len(options))
        ]


def _first(sources: Sources, place: int) -> First:
    return First(
        place,
        sources.pool.nodes.item(place),
        sources.cost_s.item(place),
        sources.queue_s.item(place),
        sources.compute_s.item(place),
        sources.lacking.load_s.item(place),
        sources.done_s.item(place),
        sources.turn.item(place),
    )


def _lone(seats: Seats, place: int) -> Option:
    return Option(
        seats.alone_s.item(place),
        None,
        place,
        seats.queue_s.item(place) + seats.wait_s.item(place),
        seats.compute_s.item(place),
        seats.lacking.load_s.item(place),
        0.0,
        seats.turn.item(place),
    )


def _least_violating(seats: Seats, unfit: Floats) -> Floats:
    """Unfit are also those that violate constraints more than others do."""
    violation = seats.decoding.violation
    if violation is None:
        return unfit
    least = (violation + unfit).min(initial=inf)
    return np.where(violation <= least + _SAME_VIOLATION, unfit, inf)


def _cheapest_on(node: int, pool: Pool, cost_s: Floats, known: Sequence[First | Second]) -> int | None:
    """The cheapest replica of a node, None when there is none of finite cost, or when it is known already."""
    place = min(pool.on_node.get(node, ()), key=cost_s.item, default=None)
    if place is None or cost_s[place] == inf or place in [each.place for each in known]:
        return None
    return place
