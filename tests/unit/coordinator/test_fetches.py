"""What a decision says of other nodes' blocks reaches the leg that computes the prompt, and no other."""

from dataclasses import dataclass, replace

import pytest

from cluster.coordinator.attempt import LEAST_PATIENCE_S
from cluster.coordinator.workers import Leg
from cluster.dataplane.frames import Fetch as FetchFrame
from routing.fleet import Fleet
from routing.router import Decision, Fetch, Predicted, Rng, RouteRequest
from tests.simulation.virtual_clock import run_virtual
from tests.simulation.world import SETTINGS, Client, World, request
from tests.unit.coordinator.cases import behave

FETCH = Fetch("n1", 16, 96, worth_s=2.0)


@dataclass(frozen=True, slots=True)
class Always:
    """A router with one answer."""

    decision: Decision

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        return self.decision

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return None


def legs_of(decision: Decision) -> dict[str, Leg]:
    """The legs by role that a request with this decision opens."""

    async def main() -> dict[str, Leg]:
        world = World(behave(), prefills=1, decodes=1)
        world.coordinator._with = replace(world.coordinator._with, router=Always(decision))
        await Client(request()).run(world.coordinator, None, 0.0)
        world.check_idle()
        return {leg.role: leg for _, leg in world.workers.opened}

    legs: dict[str, Leg] = run_virtual(main())
    return legs


def fetch_of(leg: Leg) -> FetchFrame:
    assert leg.fetch is not None
    return leg.fetch


def test_a_decode_replica_that_computes_the_prompt_fetches_first() -> None:
    legs = legs_of(Decision("d0", None, "", fetch=FETCH, load_limit_tokens=0))
    fetch = fetch_of(legs["decode"])
    assert fetch == FetchFrame(fetch.fetch_id, "tcp://p0", 16, 96, 2.0)
    assert legs["decode"].load_limit_tokens == 0


def test_a_prefill_replica_fetches_and_decode_takes_all_that_is_handed_over() -> None:
    legs = legs_of(Decision("d0", "p0", "", fetch=FETCH, load_limit_tokens=0))
    assert fetch_of(legs["prefill"]).end_tokens == 96
    assert legs["prefill"].handoff is not None
    assert fetch_of(legs["prefill"]).fetch_id != legs["prefill"].handoff.handoff_id
    assert (legs["prefill"].load_limit_tokens, legs["decode"].load_limit_tokens) == (0, None)
    assert legs["decode"].fetch is None


@pytest.mark.parametrize(("worth_s", "patience_s"), [(1e-6, LEAST_PATIENCE_S), (1e6, SETTINGS.handoff_s)])
def test_a_fetch_is_waited_for_as_long_as_it_is_worth_within_bounds(worth_s: float, patience_s: float) -> None:
    legs = legs_of(Decision("d0", None, "", fetch=replace(FETCH, worth_s=worth_s)))
    assert fetch_of(legs["decode"]).deadline_s == patience_s


def test_nothing_is_fetched_from_a_node_without_a_store() -> None:
    assert legs_of(Decision("d0", None, "", fetch=replace(FETCH, node_id="gone")))["decode"].fetch is None
