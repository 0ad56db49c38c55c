"""The memory of simulated nodes: kept as the production policy says, read by other nodes, left alone where told so."""

import random
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.planning.gateway import Gateway, Mind
from cluster.planning.host_cache import HostCache
from cluster.planning.outcome import Record
from cluster.planning.settings import NetworkSettings, aggregated
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace, TraceRequest
from routing.fleet import Fleet
from routing.ledger import Ledger
from routing.router import Decision, Fetch, Rng, RouteRequest
from tests.unit.planning.engines import engine


class Script:
    """One decision after the other."""

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = iter(decisions)

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        return next(self._decisions)


def simulate(*decisions: Decision, retried: int = 0, kill_at: float | None = None) -> list[Record]:
    """The same prompt of 17 tokens once for each decision but the `retried` ones, 100 s apart, on two nodes.

    A block takes 4 s to come from another node and 2 s to be loaded.
    """
    settings = aggregated(
        2, replace(engine(), host_blocks=100, load_bytes_per_s=2.0), NetworkSettings(transfer_bytes_per_s=1.0)
    )
    requests = [TraceRequest(100.0 * number, 17, 1, array("Q", range(4))) for number in range(len(decisions) - retried)]
    gateway = Gateway(0, Mind(Script(*decisions), Ledger()), random.Random(1))
    simulation = Simulation(settings, [gateway], Trace(requests, 4))
    if kill_at is not None:
        simulation.at(kill_at, lambda: simulation.kill("d1"))
    simulation.run()
    simulation.check()
    return simulation.records


FETCH = Fetch("node-d0", 0, 16, 1.0)


def test_what_one_node_computed_another_fetches_loads_and_keeps() -> None:
    first, fetching = simulate(Decision("d0", None, ""), Decision("d1", None, "", fetch=FETCH))
    assert (first.computed_tokens, fetching.computed_tokens, fetching.fetched_tokens) == (17, 1, 16)
    assert fetching.ttft_s == pytest.approx(4 * 4.0 + 4 * 2.0 + 1.1)


def test_only_what_the_source_still_has_is_fetched() -> None:
    [record] = simulate(Decision("d1", None, "", fetch=FETCH))
    assert (record.computed_tokens, record.fetched_tokens) == (17, 0)


def test_an_engine_that_is_told_to_compute_loads_nothing() -> None:
    settings = aggregated(1, replace(engine(blocks=6), host_blocks=100, load_bytes_per_s=2.0))
    keys = (range(4), range(500, 505), range(4))
    requests = [TraceRequest(100.0 * n, 4 * len(k) + 1, 1, array("Q", k)) for n, k in enumerate(keys)]
    told = [Decision("d0", None, ""), Decision("d0", None, ""), Decision("d0", None, "", load_limit_tokens=0)]
    gateway = Gateway(0, Mind(Script(*told), Ledger()), random.Random(1))
    simulation = Simulation(settings, [gateway], Trace(requests, 4))
    simulation.run()
    *_, again = simulation.records
    assert again.computed_tokens > 1


def test_a_worker_that_dies_while_its_blocks_are_on_their_way_does_not_get_them() -> None:
    decisions = [Decision("d0", None, ""), Decision("d1", None, "", fetch=FETCH), Decision("d0", None, "")]
    _, moved = simulate(*decisions, retried=1, kill_at=105.0)
    assert (moved.finished, moved.decode, moved.attempts) == (True, "d0", 2)


@given(st.lists(st.lists(st.integers(0, 12), unique=True, max_size=5), max_size=30))
def test_a_host_tier_holds_what_it_told(prompts: list[list[int]]) -> None:
    host, told = HostCache(6), set[int]()
    for keys in prompts:
        found = host.prefix(keys)
        assert all(key in told for key in keys[:found])
        assert found == len(keys) or keys[found] not in told
        changes = host.store(keys)
        assert not set(changes.stored) & set(changes.removed)
        told = (told | set(changes.stored)) - set(changes.removed)
        assert len(host) == len(told) <= 6
