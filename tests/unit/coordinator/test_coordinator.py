"""What the coordinator does in each single case, in virtual time."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from cluster.coordinator.observer import Ended, Timings
from cluster.coordinator.timeline import Timeline
from cluster.dataplane.frames import Handoff, LegReport
from cluster.errors import (
    EngineFailed,
    NoReplicaReady,
)
from routing.router import Decision, Work
from tests.simulation.recorder import Recorder
from tests.simulation.world import SETTINGS, World, request
from tests.unit.coordinator.cases import P, Pair, answer, behave, in_virtual_time


@in_virtual_time
async def test_both_legs_are_sent_at_once_and_decode_knows_its_source() -> None:
    world = World(behave(), prefills=1, decodes=1)
    assert (await answer(world, max_tokens=4, outputs=2)).ending == "finished"
    (d, decode), (p, prefill) = world.workers.opened
    assert (d, p) == ("d0", "p0")
    assert decode.handoff == Handoff(decode.handoff.handoff_id, "tcp://p0", SETTINGS.handoff_s)
    assert prefill.handoff == Handoff(decode.handoff.handoff_id)
    assert decode.sampling == decode.request.sampling
    assert msgspec.msgpack.decode(prefill.sampling)["max_tokens"] == 1
    assert (prefill.request.outputs, prefill.request.max_tokens) == (1, 1)


@in_virtual_time
async def test_handoff_ids_are_never_used_twice() -> None:
    world = World(behave())
    for _ in range(3):
        await answer(world)
    decode_legs = [leg for _, leg in world.workers.opened if leg.role == "decode"]
    assert len({leg.handoff.handoff_id for leg in decode_legs}) == 3


@in_virtual_time
async def test_the_time_to_the_first_token_is_split_into_its_parts() -> None:
    world = World(behave(), prefills=1, decodes=1)
    await answer(world, max_tokens=3)
    (ended,) = world.observer.endings
    assert (ended.outcome, ended.generated_tokens, ended.prompt_tokens, ended.attempts) == ("finished", 3, 100, 1)
    parts = ended.timings
    assert parts == Timings(
        total_s=pytest.approx(1.201),
        ttft_s=pytest.approx(1.001),
        queue_s=pytest.approx(0.25),
        prefill_s=pytest.approx(0.75),
        transfer_s=pytest.approx(0.0),
        decode_wait_s=pytest.approx(0.001),
    )
    assert world.observer.ttft_s == [pytest.approx(1.001)]
    assert world.observer.gaps == [(1, None), (1, pytest.approx(0.1)), (1, pytest.approx(0.1))]


@in_virtual_time
async def test_a_short_prompt_goes_to_decode_alone() -> None:
    world = World(behave())
    await answer(world, prompt=16)
    ((_, leg),) = world.workers.opened
    assert (leg.role, leg.handoff) == ("decode", None)
    assert world.observer.endings[0].timings.prefill_s == pytest.approx(0.5)


@in_virtual_time
async def test_when_prefill_fails_decode_is_told_and_computes() -> None:
    world = World(behave(p0=replace(P, error=EngineFailed("x"), error_s=0.2)), prefills=1, decodes=1)
    assert (await answer(world)).ending == "finished"
    (ended,) = world.observer.endings
    assert (ended.attempts, ended.decode.handoff_outcome) == (1, "failed")
    assert ended.timings.ttft_s == pytest.approx(0.7)


@in_virtual_time
async def test_a_prefill_replica_that_has_just_gone_is_done_without() -> None:
    world = World(behave(), prefills=1, decodes=1)
    world.workers.kill("p0")
    assert (await answer(world)).ending == "finished"
    assert [leg.handoff for _, leg in world.workers.opened] == [None]


@in_virtual_time
async def test_what_was_predicted_of_a_pair_is_not_held_against_decode_alone() -> None:
    world = World(behave(), prefills=1, decodes=1, router=Pair())
    world.workers.kill("p0")
    await answer(world)
    (decision,) = world.observer.decisions
    assert (decision.prefill, decision.predicted, world.observer.predictions) == (None, None, [])
    assert decision.work == Work(100, 0.5, 4, 102, 7, prefill_keys=(3,), decode_keys=(3,))


@in_virtual_time
async def test_the_prompt_is_given_back_to_the_ledger_when_prefill_ends() -> None:
    world = World(behave(), prefills=1, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=50))
    step = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.5)
    assert world.ledger.load("p0").prefill_tokens == 100
    await step
    assert world.ledger.load("p0").prefill_tokens == 0
    assert world.ledger.load("d0").decode_tokens == 50
    await stream.aclose()


@in_virtual_time
async def test_a_fault_of_our_own_is_raised_and_leaves_nothing_behind() -> None:
    world = World(behave(), prefills=1, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    with pytest.raises(ZeroDivisionError):
        await stream.athrow(ZeroDivisionError())
    world.check_idle()
    assert world.observer.endings[0].outcome == "broken"


@in_virtual_time
async def test_without_a_decode_replica_admission_and_health_say_so() -> None:
    world = World(behave(), prefills=1, decodes=0)
    with pytest.raises(NoReplicaReady):
        world.coordinator.admit()
    with pytest.raises(NoReplicaReady):
        await world.coordinator.check_health()
    client = await answer(world)
    assert isinstance(client.ending, NoReplicaReady)


@in_virtual_time
async def test_one_decode_replica_is_enough_to_be_healthy() -> None:
    world = World(behave(), prefills=0, decodes=1)
    await world.coordinator.check_health()
    world.coordinator.admit()


class Broken:
    """An `EndListener` with a bug."""

    def ended(self, ended: Ended) -> None:
        raise ZeroDivisionError("a bug")


@in_virtual_time
async def test_a_listener_that_breaks_fails_no_request_and_hides_nothing_from_the_next() -> None:
    world, told = World(behave()), Recorder()
    told.requests = 1
    resources = replace(world.coordinator._with, listeners=[Broken(), told])
    world.coordinator._with = resources
    assert (await answer(world)).ending == "finished"
    assert [ended.outcome for ended in told.endings] == ["finished"]


@in_virtual_time
async def test_what_prefill_had_cached_for_a_lost_attempt_is_not_told_of_the_next() -> None:
    told = Recorder()
    clock = asyncio.get_running_loop().time
    timeline = Timeline(request(), clock(), clock, told)
    timeline.routed(Decision("d0", "p0", ""))
    timeline.prefill_done(LegReport(), 32)
    timeline.routed(Decision("d1", None, ""))
    timeline.ended("finished", 0)
    assert (told.endings[0].prefill, told.endings[0].prefill_cached_tokens) == (None, 0)
