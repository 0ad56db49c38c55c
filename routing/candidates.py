"""The placements worth considering for one request.

Every fit decode replica may compute the prompt itself. Of the pairs of a prefill and a decode replica only those are
looked at that can be cheapest: a pair costs what its halves cost, and the transfer between their nodes. So the cheapest
few of each half, and partners on the same node and in the same zone, are enough, and a decision is linear in the size
of the fleet.

Costs that differ by less than predictions can tell are equal; among equals it is the turn of whoever was given work
longest ago, then chance decides. Always taking the first would pile new prompts up on one replica of an idle cluster;
taking turns spreads them, and what is cached with them, more evenly than chance.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from routing.compiled import compiled
from routing.costs import Price
from routing.pool import Member
from routing.records import Column, Table, layout

TOLERANCE = 0.01
"""Costs that differ by less than this share of a time to first token are equal."""

SHORTLIST = 2
"""How many of each half are looked at."""


@dataclass(slots=True)
class Option:
    """A placement, by places: the replica `computing` the prompt is the one `decoding` when there is no hand-off.

    Until the first token: `queue_s` before the prompt is computed and for the decode replica's own queue, batch and
    step, `compute_s`, `load_s` of blocks from stores, and `first_step_s` after a hand-off. `room_s` is how much later
    than the prompt there is room to decode it with all constraints kept. The rest is as in `Price`.
    """

    cost_s: float
    computing: int
    decoding: int
    queue_s: float
    compute_s: float
    load_s: float
    first_step_s: float
    room_s: float
    crowd: float
    itl_s: float
    computed_tokens: int
    capacity_s: float
    remote_start: int
    remote_end: int
    remote_node: int
    worth_s: float
    declines: bool
    blocks: int
    turn: int


class Pair(NamedTuple):
    """Places of a prefill and a decode replica."""

    source: int
    seat: int


_OPTION = layout(Option)


@compiled
def find_options(
    members: Table[Member], prices: Table[Price], fingerprints: int, alone: int, chance: float, choice: float
) -> Table[Option]:
    """The options, the best first; none when no decode replica is fit.

    Between equals `chance`, in [0, 1), decides who is looked at, and `choice`, drawn apart from it, who comes first. Of
    decode replicas that compute the prompt themselves the `alone` best are looked at.
    """
    if len(members) == 0:
        return np.zeros(0, _OPTION)
    singles = _singles(prices, alone, chance)
    pairs = [pair for code in range(fingerprints) for pair in _pairs(members, prices, code, chance)]
    found: Table[Option] = np.zeros(len(singles) + len(pairs), _OPTION)
    for at, seat in enumerate(singles):
        _write_single(prices, seat, found[at])
    for at, pair in enumerate(pairs):
        _write_pair(members, prices, pair, found[len(singles) + at])
    return _ordered(found, choice)


@compiled
def _singles(prices: Table[Price], size: int, chance: float) -> Column:
    """The best decode replicas that compute the prompt themselves."""
    cost_s, turns = prices["alone_s"], prices["turn"]
    best = prices[cost_s.argmin()]
    first_s = best.queue_s + best.wait_s + best.compute_s + best.host_s
    return _in_order(cost_s, turns, TOLERANCE * first_s, chance, size)


@compiled
def _pairs(members: Table[Member], prices: Table[Price], fingerprint: int, chance: float) -> list[Pair]:
    """The best of each half, and where they are apart also partners on one node and in one zone."""
    source_s, seat_s = _half_s(members, prices, False, fingerprint), _half_s(members, prices, True, fingerprint)
    tolerance_s, turns = TOLERANCE * _done_s(prices[source_s.argmin()]), prices["turn"]
    sources = _in_order(source_s, turns, tolerance_s, chance, SHORTLIST)
    seats = _in_order(seat_s, turns, tolerance_s, chance, SHORTLIST)
    pairs = [Pair(source, seat) for source in sources for seat in seats]
    if pairs and members[sources[0]].node != members[seats[0]].node:
        for where in (members["node"], members["zone"]):
            for source in sources:
                for seat in _in_order(_where(where, source, seat_s), turns, 0.0, 0.0, 1):
                    _add(pairs, source, seat)
            for seat in seats:
                for source in _in_order(_where(where, seat, source_s), turns, 0.0, 0.0, 1):
                    _add(pairs, source, seat)
    return pairs


@compiled
def _add(pairs: list[Pair], source: int, seat: int) -> None:
    """Unless it is there already."""
    for pair in pairs:
        if pair.source == source and pair.seat == seat:
            return
    pairs.append(Pair(source, seat))


@compiled
def _half_s(members: Table[Member], prices: Table[Price], decodes: bool, fingerprint: int) -> Column:
    """What replicas of one role and fingerprint cost as halves, infinite for others."""
    cost_s = np.full(len(members), inf)
    for place in range(len(members)):
        if members[place].decodes == decodes and members[place].fingerprint == fingerprint:
            cost_s[place] = prices[place].half_s
    return cost_s


@compiled
def _where(codes: Column, at: int, cost_s: Column) -> Column:
    """The costs of those with the code of the replica `at`, infinite for others."""
    near_s = np.full(len(cost_s), inf)
    for place in range(len(cost_s)):
        if codes[place] == codes[at]:
            near_s[place] = cost_s[place]
    return near_s


@compiled
def _done_s(price: Price) -> float:
    """From now until a prefill replica has computed the prompt."""
    return price.queue_s + price.compute_s + price.host_s


@compiled
def _write_single(prices: Table[Price], seat: int, option: Option) -> None:
    price = prices[seat]
    option.cost_s = price.alone_s
    option.computing = option.decoding = seat
    option.queue_s = max(price.queue_s, price.seat_s) + price.wait_s
    option.compute_s = price.compute_s
    option.load_s = price.host_s
    option.room_s = max(0.0, price.room_s - price.queue_s)
    option.turn = price.turn
    _write_work(price, price, option)


@compiled
def _write_pair(members: Table[Member], prices: Table[Price], pair: Pair, option: Option) -> None:
    """Both halves and what lies between them."""
    first, second = prices[pair.source], prices[pair.seat]
    transfer_s = _transfer_s(members[pair.source], members[pair.seat], second.far_tokens, first.compute_s)
    there_s = _done_s(first) + transfer_s
    wait_s = max(0.0, second.queue_s - there_s)
    option.cost_s = first.half_s + second.half_s + wait_s + transfer_s  # `half_s` has the wait for a place
    option.computing, option.decoding = pair.source, pair.seat
    option.queue_s = first.queue_s + max(wait_s, second.seat_s - there_s)
    option.room_s = max(0.0, second.room_s - there_s)
    option.compute_s = first.compute_s
    option.load_s = first.host_s + transfer_s + second.fetch_s
    option.first_step_s = second.first_step_s
    option.turn = max(first.turn, second.turn)
    _write_work(first, second, option)


@compiled
def _write_work(computing: Price, decoding: Price, option: Option) -> None:
    option.computed_tokens, option.capacity_s = computing.computed_tokens, computing.capacity_s
    option.remote_start, option.remote_end = computing.remote_start, computing.remote_end
    option.remote_node, option.worth_s = computing.remote_node, computing.worth_s
    option.declines = computing.declines
    option.itl_s, option.blocks, option.crowd = decoding.itl_s, decoding.blocks, decoding.crowd


@compiled
def _transfer_s(source: Member, seat: Member, tokens: int, compute_s: float) -> float:
    """A pull from another node overlaps with prefill, but for its last chunk."""
    if tokens <= 0 or source.node == seat.node:
        return 0.0
    distance = 1.0 if source.zone == seat.zone else seat.far_factor
    token_s = seat.remote_token_s * distance
    last_s = min(tokens, seat.chunk_tokens) * token_s
    return seat.remote_latency_s * distance + max(last_s, tokens * token_s - compute_s)


@compiled
def _ordered(found: Table[Option], choice: float) -> Table[Option]:
    """The best first. A pair's turn is that of the half that was given work last."""
    if len(found) == 0:
        return found
    cost_s, turns = found["cost_s"], found["turn"]
    best = found[cost_s.argmin()]
    ttft_s = best.queue_s + best.compute_s + best.load_s + best.first_step_s
    ordered: Table[Option] = np.zeros(len(found), _OPTION)
    for at, place in enumerate(_in_order(cost_s, turns, TOLERANCE * ttft_s, choice, len(found))):
        ordered[at] = found[place]
    return ordered


@compiled
def _in_order(cost_s: Column, turns: Column, tolerance_s: float, chance: float, size: int) -> Column:
    """Places of the `size` cheapest, the best first, those of infinite cost left out.

    Those within `tolerance_s` of the cheapest are equal and by turn, smallest first; equal turns begin anywhere.
    """
    limit_s = cost_s.min() + tolerance_s
    start = _any_within(cost_s, limit_s, chance)
    left_s = cost_s.copy()
    order = np.empty(size, dtype=np.int64)
    for position in range(size):
        best = start
        for place in range(start + 1, start + len(left_s)):
            place -= len(left_s) if place >= len(left_s) else 0  # sooner than a division
            if _before(place, best, left_s, turns, limit_s):
                best = place
        if left_s[best] == inf:
            return order[:position]
        order[position] = best
        left_s[best] = inf
    return order


@compiled
def _before(one: int, other: int, cost_s: Column, turns: Column, limit_s: float) -> bool:
    """Whether one place is better than another."""
    if cost_s[one] <= limit_s and cost_s[other] <= limit_s:
        return bool(turns[one] < turns[other])
    return (cost_s[one], one) < (cost_s[other], other)


@compiled
def _any_within(cost_s: Column, limit_s: float, chance: float) -> int:
    """One of the places within the limit, each with the same chance."""
    left = int(chance * (cost_s <= limit_s).sum())
    for place in range(len(cost_s)):
        if cost_s[place] <= limit_s:
            if left == 0:
                return place
            left -= 1
    return 0
