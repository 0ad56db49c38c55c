"""Legs from a gateway's stream to the engine and back, over TCP."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from cluster.dataplane.frames import Delta, Emitted, LegReport
from cluster.dataplane.pool import WorkerPool
from cluster.errors import CannotContinue, DeadlineExceeded, EngineFailed, InvalidRequest, ReplicaLost
from tests.unit.dataplane.peers import DEADLINE_S, pool_settings, until
from tests.unit.workers.running import Running, handoff, leg, running_worker


def without_times(report: LegReport | None) -> LegReport:
    assert report is not None
    assert report.first_token_s > 0.0
    return msgspec.structs.replace(report, held_s=0.0, first_token_s=0.0)


async def nothing_is_left(running: Running) -> None:
    await until(lambda: running.engine.running == 0 and running.worker.load().running == 0)
    await until(lambda: running.worker.load().held == 0 and not any(s.streams for s in running.pool.statistics()))
    assert all(request.closed for request in running.engine.requests.values())
    assert set(running.store.waits) <= set(running.store.released)


async def test_a_decode_leg_without_a_handoff_goes_to_the_engine_at_once() -> None:
    async with running_worker() as running:
        stream = running.open(leg())
        request = await running.engine.arrived("r1")
        assert (request.request.token_ids, request.request.handoff_id) == ([1, 2, 3, 4, 5], None)
        request.say(7, cached=4)
        assert await stream.next() == [Delta(0, [7], " 7", num_cached_tokens=4)]
        request.say(8, finish="stop")
        (last,) = await stream.next()
        assert (last.token_ids, last.finish_reason, without_times(last.report)) == ([8], "stop", LegReport())
        await nothing_is_left(running)


async def test_a_prefill_leg_names_its_handoff_and_sends_only_its_end() -> None:
    async with running_worker() as running:
        stream = running.open(leg(role="prefill", handoff=handoff()))
        request = await running.engine.arrived("r1")
        assert request.request.handoff_id == "h1"
        request.say(7, finish="length", cached=4)
        (last,) = await stream.next()
        assert (last.token_ids, last.text, last.finish_reason, last.num_cached_tokens) == ([], "", "length", 4)
        assert without_times(last.report) == LegReport()
        assert running.store.waits == {}
        await nothing_is_left(running)


async def test_a_decode_leg_waits_for_its_blocks_and_reports_what_moved() -> None:
    async with running_worker() as running:
        stream = running.open(leg(handoff=handoff()))
        wait = await running.store.waiting("h1")
        assert (wait.source, wait.deadline_s, running.engine.requests) == ("tcp://there", 30.0, {})
        await until(lambda: running.pool.loads()["w1"].held == 1)
        wait.end("ready")
        request = await running.engine.arrived("r1")
        assert (request.request.expected_blocks, request.request.missing_reason) == (4, "evicted")
        request.say(7)
        await stream.next()
        await until(lambda: running.store.released == {"h1": 1})
        request.say(8, finish="stop")
        (last,) = await stream.next()
        assert without_times(last.report) == LegReport(
            handoff_outcome="ready", announced_blocks=4, present_blocks=4, pulled_blocks=4, pulled_bytes=4000
        )
        await nothing_is_left(running)
        assert running.store.released == {"h1": 1}


async def test_blocks_of_the_same_node_have_no_source() -> None:
    async with running_worker() as running:
        running.open(leg(handoff=handoff(source="tcp://here")))
        assert (await running.store.waiting("h1")).source is None


@pytest.mark.parametrize(("outcome", "reason"), [("late", "late"), ("failed", "failed")])
async def test_the_engine_gets_the_request_however_the_wait_ends(outcome, reason) -> None:
    async with running_worker() as running:
        running.open(leg(handoff=handoff()))
        (await running.store.waiting("h1")).end(outcome, announced=4, present=1)
        request = (await running.engine.arrived("r1")).request
        assert (request.expected_blocks, request.missing_reason) == (4, reason)


async def test_a_lost_source_ends_the_wait() -> None:
    async with running_worker() as running:
        stream = running.open(leg(handoff=handoff()))
        wait = await running.store.waiting("h1")
        stream.source_lost()
        request = await running.engine.arrived("r1")
        assert (request.request.missing_reason, wait.ended.cancelled()) == ("failed", True)
        stream.source_lost()
        request.say(7, finish="stop")
        (last,) = await stream.next()
        assert without_times(last.report) == LegReport(handoff_outcome="failed")
        await nothing_is_left(running)


async def test_a_store_that_is_away_costs_no_wait() -> None:
    async with running_worker() as running:
        running.store.lose()
        stream = running.open(leg(handoff=handoff()))
        request = await running.engine.arrived("r1")
        request.say(7, finish="stop")
        (last,) = await stream.next()
        assert without_times(last.report) == LegReport(handoff_outcome="failed")


async def test_a_store_that_dies_during_the_wait_ends_it() -> None:
    async with running_worker() as running:
        running.open(leg(handoff=handoff()))
        await running.store.waiting("h1")
        running.store.lose()
        assert (await running.engine.arrived("r1")).request.missing_reason == "failed"


async def test_the_last_delta_of_several_outputs_carries_the_report() -> None:
    async with running_worker() as running:
        stream = running.open(leg(outputs=2))
        request = await running.engine.arrived("r1")
        request.say(11, index=1, finish="stop")
        (first,) = await stream.next()
        assert (first.index, first.finish_reason, first.report) == (1, "stop", None)
        request.say(7, finish="length")
        (last,) = await stream.next()
        assert (last.index, last.finish_reason, without_times(last.report)) == (0, "length", LegReport())


async def test_closing_while_the_engine_works_cancels_the_engine() -> None:
    async with running_worker() as running:
        stream = running.open(leg())
        request = await running.engine.arrived("r1")
        request.say(7)
        await stream.next()
        stream.close()
        await until(lambda: request.closed)
        await nothing_is_left(running)


async def test_closing_while_blocks_are_awaited_releases_them() -> None:
    async with running_worker() as running:
        stream = running.open(leg(handoff=handoff()))
        wait = await running.store.waiting("h1")
        stream.close()
        await until(lambda: running.store.released == {"h1": 1})
        assert wait.ended.cancelled()
        assert running.engine.requests == {}
        await nothing_is_left(running)


async def test_an_aborted_prefill_leg_gives_up_its_handoff() -> None:
    async with running_worker() as running:
        stream = running.open(leg(role="prefill", handoff=handoff()))
        await running.engine.arrived("r1")
        stream.close()
        await until(lambda: running.store.released == {"h1": 1})
        await nothing_is_left(running)


async def test_a_failed_prefill_leg_gives_up_its_handoff() -> None:
    async with running_worker() as running:
        stream = running.open(leg(role="prefill", handoff=handoff()))
        (await running.engine.arrived("r1")).fail(EngineFailed("cannot step"))
        with pytest.raises(EngineFailed):
            await stream.next()
        await until(lambda: running.store.released == {"h1": 1})


async def test_a_prefill_leg_that_answered_leaves_its_handoff_to_decode() -> None:
    async with running_worker() as running:
        stream = running.open(leg(role="prefill", handoff=handoff()))
        (await running.engine.arrived("r1")).say(7, finish="length")
        await stream.next()
        await nothing_is_left(running)
        assert running.store.released == {}


async def test_a_leg_aborted_before_it_began_gives_up_its_handoff() -> None:
    async with running_worker() as running:
        running.open(leg(handoff=handoff())).close()
        await until(lambda: running.store.released == {"h1": 1})


async def test_a_prefill_leg_without_its_store_fails_at_once() -> None:
    async with running_worker() as running:
        running.store.lose()
        await until(lambda: running.pool.loads()["w1"].gauges["store_up"] == 0)
        stream = running.open(leg(role="prefill", handoff=handoff()))
        with pytest.raises(ReplicaLost, match="KV store"):
            await stream.next()
        assert running.engine.requests == {}


async def test_a_prefill_leg_that_loses_its_store_does_not_answer() -> None:
    async with running_worker() as running:
        stream = running.open(leg(role="prefill", handoff=handoff()))
        request = await running.engine.arrived("r1")
        running.store.lose()
        await until(lambda: running.pool.loads()["w1"].gauges["store_up"] == 0)
        request.say(7, finish="length")
        with pytest.raises(ReplicaLost, match="KV store"):
            await stream.next()


async def test_closing_at_once_never_reaches_the_engine() -> None:
    async with running_worker() as running:
        running.open(leg(handoff=handoff())).close()
        stream = running.open(leg("r2"))
        (await running.engine.arrived("r2")).say(7, finish="stop")
        await stream.next()
        assert set(running.engine.requests) == {"r2"}
        await nothing_is_left(running)


async def test_a_lost_connection_aborts_its_legs_and_no_others() -> None:
    async with running_worker() as running:
        async with WorkerPool(pool_settings()) as other:
            other.update({"w1": running.worker.address})
            await other.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), DEADLINE_S)
            theirs = other.open("w1", leg("theirs"))
            await running.engine.arrived("theirs")
            running.open(leg("ours"))
            ours = await running.engine.arrived("ours")
        await until(lambda: running.engine.requests["theirs"].closed)
        with pytest.raises(ReplicaLost):
            await theirs.next()
        assert not ours.closed


async def test_an_output_that_goes_on_is_asked_of_the_engine_after_what_was_sent() -> None:
    async with running_worker() as running:
        stream = running.open(replace(leg(handoff=handoff()), emitted=[Emitted(0, [7, 8], 4)]))
        (await running.store.waiting("h1")).end("ready")
        request = await running.engine.arrived("r1.0")
        assert (request.request.token_ids, request.request.emitted) == ([1, 2, 3, 4, 5], Emitted(0, [7, 8], 4))
        assert request.request.known_tokens == [1, 2, 3, 4, 5, 7, 8]
        request.say(9, finish="stop")
        (last,) = await stream.next()
        assert (last.token_ids, without_times(last.report).handoff_outcome) == ([9], "ready")
        await nothing_is_left(running)


async def test_outputs_that_go_on_are_requests_of_their_own_and_the_leg_ends_with_the_last() -> None:
    async with running_worker() as running:
        going_on = [Emitted(0, [7], 2), Emitted(2, [], 0)]
        stream = running.open(replace(leg(outputs=3), emitted=going_on))
        one, other = await running.engine.arrived("r1.0"), await running.engine.arrived("r1.2")
        assert [one.request.emitted, other.request.emitted] == going_on
        other.steps.put_nowait(Delta(2, [20]))
        assert [(d.index, d.token_ids) for d in await stream.next()] == [(2, [20])]
        one.say(10, finish="stop")
        (first,) = await stream.next()
        assert (first.index, first.report) == (0, None)
        other.steps.put_nowait(Delta(2, [21], finish_reason="length"))
        (last,) = await stream.next()
        assert (last.index, last.token_ids, without_times(last.report)) == (2, [21], LegReport())
        other.steps.put_nowait(EngineFailed("after the end"))
        await nothing_is_left(running)


async def test_an_output_that_cannot_go_on_fails_the_leg_and_ends_the_others() -> None:
    async with running_worker() as running:
        stream = running.open(replace(leg(outputs=2), emitted=[Emitted(0, [7], 2), Emitted(1, [8], 2)]))
        other = await running.engine.arrived("r1.1")
        (await running.engine.arrived("r1.0")).fail(CannotContinue("too long"))
        with pytest.raises(CannotContinue, match="too long"):
            await stream.next()
        await until(lambda: other.closed)
        await nothing_is_left(running)


@pytest.mark.parametrize("waits_for_blocks", [False, True])
async def test_a_leg_that_takes_too_long_fails_and_frees_everything(waits_for_blocks) -> None:
    async with running_worker() as running:
        stream = running.open(leg(handoff=handoff() if waits_for_blocks else None, deadline_s=0.05))
        with pytest.raises(DeadlineExceeded, match=r"0\.05 s"):
            await stream.next()
        await nothing_is_left(running)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (InvalidRequest("no such grammar"), InvalidRequest),
        (EngineFailed("no such grammar"), EngineFailed),
        (ValueError("no such grammar"), EngineFailed),
    ],
)
async def test_an_error_of_the_engine_stays_in_its_leg(raised, error) -> None:
    async with running_worker() as running:
        one, other = running.open(leg("r1")), running.open(leg("r2"))
        (await running.engine.arrived("r1")).fail(raised)
        with pytest.raises(error, match="no such grammar"):
            await one.next()
        (await running.engine.arrived("r2")).say(7, finish="stop")
        assert [delta.token_ids for delta in await other.next()] == [[7]]
        await nothing_is_left(running)


async def test_sampling_that_is_none_is_the_requests_fault() -> None:
    async with running_worker() as running:
        for sampling in (msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode({"n": "many"})):
            bad = leg()
            stream = running.open(type(bad)("decode", bad.request, sampling, None, 60.0))
            with pytest.raises(InvalidRequest):
                await stream.next()
        assert running.engine.requests == {}


async def test_counters_tell_how_legs_ended() -> None:
    async with running_worker() as running:
        running.open(leg("r1", handoff=handoff())).close()
        stream = running.open(leg("r2", handoff=handoff("h2"), deadline_s=0.05))
        with pytest.raises(DeadlineExceeded):
            await stream.next()
        await asyncio.sleep(0)
        counters = running.worker.load().counters
        assert {name: counters[name] for name in ("legs_decode", "legs_aborted", "legs_failed_deadline")} == {
            "legs_decode": 2,
            "legs_aborted": 1,
            "legs_failed_deadline": 1,
        }
