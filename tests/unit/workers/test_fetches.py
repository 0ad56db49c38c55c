"""Legs whose blocks lie in another node's store: brought here first, over TCP from gateway to worker."""

import pytest

from cluster.dataplane.frames import Fetch, Handoff, LegReport, Role
from routing.block_keys import extend, root
from tests.unit.dataplane.peers import until
from tests.unit.workers.running import handoff, leg, running_worker
from tests.unit.workers.test_legs import nothing_is_left, without_times

KEYS = extend(root(None, None), [1, 2, 3, 4], 4)
FETCH = Fetch("f1", "tcp://there", 0, 4, 30.0)


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_leg_waits_until_its_blocks_are_brought(role: Role) -> None:
    async with running_worker() as running:
        stream = running.open(leg(role=role, handoff=handoff() if role == "prefill" else None, fetch=FETCH))
        wait = await running.store.waiting("f1")
        assert (wait.source, wait.deadline_s, running.store.fetched) == ("tcp://there", 30.0, {"f1": KEYS})
        assert running.engine.requests == {}
        await until(lambda: running.pool.loads()["w1"].held == 1)
        wait.end("ready", announced=1, present=1, pulled=1)
        request = await running.engine.arrived("r1")
        assert request.request.expected_blocks == 0
        request.say(7, finish="stop", cached=4)
        (last,) = await stream.next()
        assert without_times(last.report) == LegReport(pulled_blocks=1, pulled_bytes=1000, fetch_outcome="ready")
        assert last.report is not None
        assert last.report.held_s > 0.0
        await until(lambda: running.store.released["f1"] == 1)
        await nothing_is_left(running)
        counters = running.worker.load().counters
        assert (counters["fetches_ready"], counters["fetches_pulled_bytes"]) == (1, 1000)


@pytest.mark.parametrize(
    ("outcome", "announced", "told"), [("ready", 0, "absent"), ("late", 1, "late"), ("failed", 0, "failed")]
)
async def test_the_engine_gets_the_request_however_the_fetch_ends(outcome, announced, told) -> None:
    async with running_worker() as running:
        stream = running.open(leg(fetch=FETCH))
        (await running.store.waiting("f1")).end(outcome, announced=announced, present=0, pulled=0)
        (await running.engine.arrived("r1")).say(7, finish="stop")
        (last,) = await stream.next()
        assert without_times(last.report) == LegReport(fetch_outcome=told)
        assert running.worker.load().counters[f"fetches_{told}"] == 1


async def test_a_store_that_is_away_costs_no_wait() -> None:
    async with running_worker() as running:
        running.store.lose()
        stream = running.open(leg(fetch=FETCH))
        (await running.engine.arrived("r1")).say(7, finish="stop")
        (last,) = await stream.next()
        assert without_times(last.report) == LegReport(fetch_outcome="failed")


async def test_closing_while_blocks_are_brought_releases_them() -> None:
    async with running_worker() as running:
        stream = running.open(leg(fetch=FETCH))
        wait = await running.store.waiting("f1")
        stream.close()
        await until(lambda: running.store.released == {"f1": 1})
        assert wait.ended.cancelled()
        await nothing_is_left(running)


async def test_a_hand_off_that_nobody_comes_for_is_let_go() -> None:
    async with running_worker() as running:
        stream = running.open(leg(role="prefill", handoff=handoff()))
        (await running.engine.arrived("r1")).say(7, finish="length")
        await stream.next()
        assert running.store.released == {}
        running.pool.let_go("w1", Handoff("h1"))
        running.pool.let_go("gone", Handoff("h2"))
        await until(lambda: running.store.released == {"h1": 1})


async def test_a_leg_says_how_much_may_be_loaded() -> None:
    async with running_worker() as running:
        limited = leg()
        running.open(type(limited)("decode", limited.request, limited.sampling, None, 60.0, load_limit_tokens=0))
        assert (await running.engine.arrived("r1")).request.load_limit_tokens == 0
