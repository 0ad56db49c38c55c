"""What the ledger keeps does not grow with the requests it has seen."""

import sys
from random import Random

import pytest

from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.ledger import Lease, Ledger
from routing.router import Decision, RouteRequest, Work

REPLICAS = {role: [f"{role}{i}" for i in range(8)] for role in "pd"}
WORK = Work(100, 0.01, 50, 120, 8, (1, 2, 3), (1, 2, 3))


def serve(ledger: Ledger, index: BlockIndex, requests: int, rng: Random) -> None:
    """Requests that finish, are cancelled before or after their prompt is computed, or lose a replica."""
    open_leases: list[Lease] = []
    for i in range(requests):
        pair = rng.choice(REPLICAS["p"]) if rng.random() < 0.5 else None
        decision = Decision(rng.choice(REPLICAS["d"]), pair, "", work=WORK)
        open_leases.append(ledger.reserve(decision, RouteRequest("r", 100, 50), float(i)))
        if rng.random() < 0.7:
            ledger.prefill_done(rng.choice(open_leases), float(i))
        if len(open_leases) > 100:
            ledger.release(open_leases.pop(rng.randrange(len(open_leases))), float(i))
        if rng.random() < 0.001:
            ledger.drop(decision.decode)
        if i % 50 == 0:
            index.longest_prefix(WORK.prefill_keys, float(i))
    for lease in open_leases:
        ledger.release(lease, float(requests))


@pytest.mark.slow
def test_memory_is_flat_over_200_000_requests_with_random_ends() -> None:
    rng, index = Random(0), BlockIndex(2**24)
    for name in (*REPLICAS["p"], *REPLICAS["d"]):
        index.place(name, "n")
        index.snapshot(name, Tier.DEVICE, ())
    ledger = Ledger(index)
    serve(ledger, index, 1000, rng)
    before = sys.getallocatedblocks()
    serve(ledger, index, 199_000, rng)
    assert sys.getallocatedblocks() - before < 500
    statistics = ledger.statistics()
    assert (statistics.open_leases, statistics.replicas, statistics.released) == (0, 0, 200_000)
    ledger.check()


def test_what_is_remembered_of_replicas_is_bounded() -> None:
    ledger = Ledger()
    for i in range(20_000):
        ledger.release(ledger.reserve(Decision(f"d{i}", None, ""), RouteRequest("r", 10, 5)))
    assert len(ledger.books.table) <= 2 * 8192
    assert ledger.accounts == {}
