"""Placements that wait for blocks which another replica computes at this moment, so that equal prompts that come
together are not computed by each replica for itself.

The replica that leads is computing the prompt's first blocks, for another request; they come into its node's store, and
whoever shares the store or can read it loads them from there. What that costs is the price of a replica that has them
and cannot begin sooner. It is offered where nobody but decode replicas could compute the prompt: prefill replicas share
what they compute by handing it over.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from routing.block_keys import PromptKeys
from routing.books import Booked
from routing.costs import Found, Price
from routing.found import write_far
from routing.pool import Kin, Pool
from routing.records import Table
from routing.router import Coming

TOLD_S = 0.05
"""From when a block is computed until a gateway knows that a store has it: stores tell 40 times a second."""


class Leader(NamedTuple):
    """The place of who computes the prompt's first `tokens`, which are in its store in `there_s`."""

    place: int
    tokens: int
    there_s: float


def find_leader(pool: Pool, found: Table[Found], prices: Table[Price], books: Table[Booked]) -> Leader | None:
    """Of those with most to come the one that is done first. What it had cached has to be in its store, too."""
    coming = found["coming"]
    if not coming.any() or not pool.members["decodes"].all():
        return None
    leads = (books["prefill_tokens"][pool.rows] > 0) & (found["node"] >= found["device"]) & (prices["violation"] < inf)
    tokens = coming * leads
    if not tokens.any():
        return None
    most = (tokens == tokens.max()).nonzero()[0]
    place = int(most[prices["queue_s"][most].argmin()])
    return Leader(place, int(tokens[place]), float(prices["queue_s"][place]) + TOLD_S)


def when_there(pool: Pool, found: Table[Found], leader: Leader) -> Table[Found]:
    """What the others can use once the leader's blocks are in its store."""
    later: Table[Found] = found.copy()  # type: ignore[attr-defined]  # a numpy array behind the protocol
    for kin in pool.kinds.values():
        for store, places in kin.by_store.items():
            if leader.place in places:
                _add(later, kin, store, leader)
                write_far(later, pool, kin)
    return later


def _add(found: Table[Found], kin: Kin, store: str, leader: Leader) -> None:
    for place in kin.places:
        if place == leader.place:
            continue
        found["there_s"][place] = leader.there_s
        if place in kin.by_store[store]:
            found["host"][place] = max(found["host"][place], leader.tokens)
        elif leader.tokens > found["remote"][place]:
            found["remote"][place], found["remote_node"][place] = leader.tokens, kin.nodes[store]


def take_cheaper(prices: Table[Price], later: Table[Price]) -> Sequence[int]:
    """Let those wait for whom that is cheaper. Returns where they are."""
    waiting = [int(place) for place in (later["alone_s"] < prices["alone_s"]).nonzero()[0]]
    for place in waiting:
        prices[place] = later[place]
    return waiting


def coming(leader: Leader, pool: Pool, keys: PromptKeys) -> Coming:
    """What is waited for."""
    kin = next(kin for kin in pool.kinds.values() if leader.place in kin.places)
    store = next(store for store, places in kin.by_store.items() if leader.place in places)
    size = pool.sizes[leader.place]
    return Coming(pool.ids[leader.place], store, leader.there_s, keys.at(size)[: leader.tokens // size])
