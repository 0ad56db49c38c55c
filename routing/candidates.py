"""The placements worth considering for one request.

Every fit decode replica may compute the prompt itself. Of the pairs of a prefill and a decode replica only those are
looked at that can be cheapest: a pair costs what its halves cost, and the transfer between their nodes. So the cheapest
few of each half, and partners on the same node, are enough, and a decision is linear in the size of the fleet.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeVar

from routing.account import NEVER, Given
from routing.costs import Lacking
from routing.router import Rng, RouteRequest
from routing.seats import Board, Seat, Source
from routing.standing import Standing
from routing.standings import Standings
from routing.ties import TOLERANCE, cheapest

_SHORTLIST = 3
_SAME_VIOLATION = 0.01

H = TypeVar("H", Source, Seat)

_cost = attrgetter("cost_s")
_alone_cost = attrgetter("alone_s")
_done = attrgetter("done_s")
_violation = attrgetter("violation")


class Option(NamedTuple):
    """A placement. `source` is None when the decode replica computes the prompt itself.

    Until the first token: `queue_s` before the prompt is computed, `compute_s`, `wait_s` for the decode replica's own
    queue and step, `load_s` of blocks from a store, after the last chunk also from another node, and `first_step_s`
    after a hand-off.
    """

    cost_s: float
    source: Standing | None
    seat: Seat
    lacking: Lacking
    queue_s: float
    compute_s: float
    load_s: float
    first_step_s: float

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.queue_s + self.compute_s + self.load_s + self.first_step_s


@dataclass(frozen=True, slots=True)
class Search:
    """One look at the fleet for one request. With `whole` every lone decode replica is an option, for people."""

    request: RouteRequest
    standings: Standings
    board: Board
    given: Mapping[str, Given]
    rng: Rng | None
    whole: bool = False

    def options(self) -> list[Option]:
        """The best first; empty when no decode replica is fit. Constraints are violated as little as can be."""
        by_print: dict[str, list[Source]] = {}
        for source in self._sources():
            by_print.setdefault(source.standing.fingerprint, []).append(source)
        seats = self._seats(by_print)
        if not seats:
            return []
        options = self._alone(seats)
        for fingerprint, sources in by_print.items():
            partners = [seat for seat in seats if seat.standing.fingerprint == fingerprint and seat.terms.whole]
            if partners:
                options += self._pairs(sources, partners)
        best = min(options, key=_cost)
        return cheapest(options, _cost, TOLERANCE * best.ttft_s, self._turn, self.rng)

    def _sources(self) -> list[Source]:
        request = self.request
        if not request.may_disaggregate:
            return []
        needed, exclude = request.prompt_tokens + 1, request.exclude
        return self.board.sources(
            [s for s in self.standings.prefills if s.max_model_len >= needed and s.replica_id not in exclude]
        )

    def _seats(self, partners: Container[str]) -> list[Seat]:
        """Those that violate their constraints least."""
        request = self.request
        needed, exclude = request.prompt_tokens + request.max_tokens, request.exclude
        seats = self.board.seats(
            [s for s in self.standings.decodes if s.max_model_len >= needed and s.replica_id not in exclude], partners
        )
        most = min(map(_violation, seats), default=0.0) + _SAME_VIOLATION
        return [seat for seat in seats if seat.violation <= most]

    def _alone(self, seats: list[Seat]) -> list[Option]:
        """Decode replicas that compute the prompt themselves."""
        if not self.whole:
            best = min(seats, key=_alone_cost)
            tolerance_s = TOLERANCE * (best.queue_s + best.wait_s + best.compute_s + best.lacking.load_s)
            seats = cheapest(seats, _alone_cost, tolerance_s, self._turn_of, self.rng, _SHORTLIST)
        return [
            Option(s.alone_s, None, s, s.lacking, s.queue_s + s.wait_s, s.compute_s, s.lacking.load_s, 0.0)
            for s in seats
        ]

    def _pairs(self, sources: list[Source], seats: list[Seat]) -> Iterator[Option]:
        """The shortlists against each other, and each of them with the best partners on its own node."""
        tolerance_s = TOLERANCE * min(map(_done, sources))
        best_sources = cheapest(sources, _cost, tolerance_s, self._turn_of, self.rng, _SHORTLIST)
        best_seats = cheapest(seats, _cost, tolerance_s, self._turn_of, self.rng, _SHORTLIST)
        near_seats = _best_on(best_sources, seats)
        near_sources = _best_on(best_seats, sources)
        for source in best_sources:
            for seat in best_seats:
                yield self._pair(source, seat)
            near = near_seats.get(source.standing.node_id)
            if near is not None and all(near is not seat for seat in best_seats):
                yield self._pair(source, near)
        for seat in best_seats:
            other = near_sources.get(seat.standing.node_id)
            if other is not None and all(other is not source for source in best_sources):
                yield self._pair(other, seat)

    def _pair(self, source: Source, seat: Seat) -> Option:
        """Both halves and what lies between them: a pull that overlaps with prefill, but for its last chunk."""
        transfer_s = 0.0
        if source.standing.node_id != seat.standing.node_id:
            transfer_s = self._transfer_s(source, seat)
        wait_s = max(0.0, seat.queue_s - source.done_s - transfer_s)
        return Option(
            source.cost_s + seat.cost_s + wait_s + transfer_s,
            source.standing,
            seat,
            source.lacking,
            source.queue_s + wait_s,
            source.compute_s,
            source.lacking.load_s + transfer_s + seat.handover.load_s,
            seat.first_step_s,
        )

    def _transfer_s(self, source: Source, seat: Seat) -> float:
        """What the decode replica and its node lack is pulled as it is computed."""
        kind = seat.standing.kind
        far = (seat.terms.whole - max(seat.device, self.board.on_node(seat.standing))) * kind.block_size
        if far <= 0:
            return 0.0
        remote = self.standings.remote
        last_s = min(far, source.standing.kind.chunk_tokens) * remote.token_s
        return remote.latency_s + max(last_s, far * remote.token_s - source.compute_s)

    def _turn_of(self, half: Source | Seat) -> int:
        return self.given.get(half.standing.replica_id, NEVER).turn

    def _turn(self, option: Option) -> int:
        """A pair's turn is that of the half that was given work last."""
        turn = self._turn_of(option.seat)
        if option.source is None:
            return turn
        return max(turn, self.given.get(option.source.replica_id, NEVER).turn)


def _best_on(near: list[Source] | list[Seat], halves: list[H]) -> dict[str, H]:
    """The cheapest of `halves` on each node where one of `near` is."""
    nodes = {half.standing.node_id for half in near}
    best: dict[str, H] = {}
    for half in halves:
        node_id = half.standing.node_id
        if node_id in nodes and (node_id not in best or half.cost_s < best[node_id].cost_s):
            best[node_id] = half
    return best
