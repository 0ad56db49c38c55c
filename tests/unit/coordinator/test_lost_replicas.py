"""What becomes of a request whose replicas are lost, drained or fail, in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from cluster.coordinator.patience import FORGIVE_AFTER_S, LONGEST_PAUSE_S
from cluster.dataplane.frames import Emitted
from cluster.errors import (
    CannotContinue,
    EngineFailed,
    InvalidRequest,
    NoReplicaReady,
    ReplicaDraining,
    ReplicaLost,
)
from routing.fleet import Role
from tests.simulation.fake_workers import Behaviour, reference, text
from tests.simulation.world import SETTINGS, Client, World, request
from tests.unit.coordinator.cases import D, P, answer, behave, first_on, in_virtual_time


@in_virtual_time
async def test_decode_lost_before_a_token_is_rerouted_without_it() -> None:
    faults = {
        "d0": Behaviour(error=ReplicaLost("x"), error_s=0.3),
        "d1": Behaviour(error=ReplicaLost("y"), error_s=0.3),
    }
    world = World(behave(**faults), prefills=1, decodes=3)
    assert (await answer(world)).ending == "finished"
    tried = [replica_id for replica_id, leg in world.workers.opened if leg.role == "decode"]
    assert tried[-1] == "d2"
    assert len(tried) == len(set(tried)) == world.observer.endings[0].attempts


@in_virtual_time
async def test_a_hand_off_whose_decode_replica_died_before_asking_is_let_go() -> None:
    world = World(behave(d0=Behaviour(hangs=True)), prefills=1, decodes=1)
    work = asyncio.ensure_future(Client(request()).run(world.coordinator, None, 0.0))
    await asyncio.sleep(P.start_s + 0.1)
    assert len(world.workers.pinned) == 1
    world.workers.kill("d0")
    world.workers.forget("d0")
    await work
    assert not world.workers.pinned
    world.check_idle()


@in_virtual_time
async def test_a_hand_off_that_decode_did_not_reach_is_let_go_when_the_request_ends() -> None:
    for leave_after in (None, 8):
        world = World(behave(d0=Behaviour(gap_s=0.2, cut_off=True)), prefills=1, decodes=1)
        client = Client(request(max_tokens=10))
        work = asyncio.ensure_future(client.run(world.coordinator, leave_after, 0.0))
        await asyncio.sleep(P.start_s + 0.1)
        assert len(world.workers.pinned) == 1
        await work
        client.check()
        world.check_idle()


@in_virtual_time
async def test_a_draining_decode_replica_is_passed_by() -> None:
    world = World(behave(d0=Behaviour(error=ReplicaDraining("draining"))), prefills=0, decodes=2)
    for _ in range(6):
        assert (await answer(world)).ending == "finished"


@in_virtual_time
async def test_streams_move_off_a_replica_that_hands_them_back_and_that_costs_no_attempt() -> None:
    settings = replace(SETTINGS, max_attempts=1)
    world = World(behave(default=Behaviour(gap_s=0.1)), prefills=0, decodes=3, settings=settings)
    client = Client(request(max_tokens=40))
    work = asyncio.create_task(client.run(world.coordinator, None, 0.0))
    for _ in range(2):
        await asyncio.sleep(1.0)
        world.workers.drain(world.workers.opened[-1][0], finish_s=0.2)
    await work
    client.check()
    assert client.ending == "finished"
    assert world.observer.endings[0].moves == world.observer.endings[0].resumes == 2
    assert len({replica_id for replica_id, _ in world.workers.opened}) == 3
    world.check_idle()


@in_virtual_time
async def test_a_stream_that_nobody_else_can_take_stays_until_somebody_can() -> None:
    world = World(behave(default=Behaviour(gap_s=0.1)), prefills=0, decodes=1)
    world.workers.add("other", Role.DECODE, model_identity="another model")
    clients = [Client(request(max_tokens=n)) for n in (20, 60)]
    work = [asyncio.create_task(client.run(world.coordinator, None, 0.0)) for client in clients]
    await asyncio.sleep(0.5)
    began = {replica_id for replica_id, _ in world.workers.opened}
    for replica_id in began:
        world.workers.drain(replica_id, finish_s=0.1)
    await work[0]
    assert {replica_id for replica_id, _ in world.workers.opened} == began
    world.workers.add("d9", Role.DECODE)
    world.workers.add("d8", Role.DECODE, model_identity="another model")
    await work[1]
    assert [client.ending for client in clients] == ["finished", "finished"]
    assert [replica_id for replica_id, leg in world.workers.opened if leg.emitted] in (["d9"], ["d8"])
    world.check_idle()


@in_virtual_time
async def test_attempts_are_bounded_and_the_last_error_is_the_answer() -> None:
    lost = {f"d{i}": Behaviour(error=EngineFailed(f"d{i}")) for i in range(5)}
    world = World(behave(**lost), prefills=1, decodes=5)
    client = await answer(world)
    assert isinstance(client.ending, EngineFailed)
    assert world.observer.endings[0].attempts == SETTINGS.max_attempts
    assert world.observer.endings[0].outcome == "engine_failed"


@in_virtual_time
async def test_decode_lost_after_tokens_goes_on_elsewhere_after_them() -> None:
    world = World(behave(p0=Behaviour(start_s=0.05), d0=replace(D, error=ReplicaLost("x"), error_s=0.2)), 1, 2)
    client = await first_on(world, "d0", max_tokens=10)
    assert (client.ending, client.tokens) == ("finished", {0: reference(range(100), 0, 10)})
    *_, (p, prefill), (d, decode) = sorted(world.workers.opened[-2:], key=lambda each: each[1].role, reverse=True)
    had = client.tokens[0][:2]
    assert (p, d) == ("p0", "d1")
    assert (decode.request, decode.sampling) == (client.request, client.request.sampling)
    assert decode.emitted == (Emitted(0, had, len(text(had))),)
    assert prefill.request.token_ids == [*range(100), *had]
    (ended,) = world.observer.endings
    assert (ended.attempts, ended.resumes, ended.generated_tokens) == (2, 1, 10)
    assert world.observer.ttft_s == [ended.timings.ttft_s] == [pytest.approx(0.051)]


@in_virtual_time
async def test_of_several_outputs_only_the_unfinished_go_on_and_they_share_the_prompt() -> None:
    world = World(behave(d0=replace(D, error=ReplicaLost("x"), error_s=0.75)), prefills=1, decodes=2)
    client = await first_on(world, "d0", prompt=16, max_tokens=7, outputs=3)  # of 7, 5 and 3 tokens
    assert client.ending == "finished"
    _, (_, resumed) = world.workers.opened
    assert [(each.index, len(each.token_ids)) for each in resumed.emitted] == [(0, 3), (1, 3)]
    assert (resumed.outputs, resumed.request.token_ids) == (2, list(range(16)))


@in_virtual_time
async def test_a_stream_that_cannot_go_on_elsewhere_ends_with_the_error_that_says_so() -> None:
    world = World(
        behave(d0=replace(D, error=ReplicaLost("x"), error_s=0.75), d1=Behaviour(error=CannotContinue("too long"))),
        prefills=0,
        decodes=2,
    )
    client = await first_on(world, "d0", max_tokens=10)
    assert isinstance(client.ending, CannotContinue)
    assert client.tokens == {0: reference(range(100), 0, 3)}


@in_virtual_time
async def test_a_stream_waits_for_its_only_replica_to_come_back() -> None:
    world = World(behave(), prefills=0, decodes=1)
    asyncio.get_running_loop().call_later(0.75, world.workers.kill, "d0")
    asyncio.get_running_loop().call_later(0.75, world.workers.forget, "d0")
    asyncio.get_running_loop().call_later(5.0, world.workers.add, "d0", Role.DECODE)
    assert (await answer(world, max_tokens=10)).ending == "finished"
    assert 5.0 <= world.observer.endings[0].timings.total_s - 1.1 <= 5.0 + LONGEST_PAUSE_S


@in_virtual_time
async def test_a_stream_whose_only_replica_does_not_come_back_fails_when_it_has_waited_long_enough() -> None:
    world = World(behave(), prefills=1, decodes=1)
    asyncio.get_running_loop().call_later(1.15, world.workers.kill, "d0")
    asyncio.get_running_loop().call_later(1.15, world.workers.forget, "d0")
    client = await answer(world, max_tokens=10)
    assert isinstance(client.ending, NoReplicaReady)
    assert world.clock() == pytest.approx(1.15 + SETTINGS.replica_s)


@in_virtual_time
async def test_an_only_replica_that_fails_but_is_well_is_asked_again_after_a_pause() -> None:
    fates = iter([replace(D, error=EngineFailed("x"), error_s=0.75), D])
    world = World(lambda replica_id, leg: next(fates), prefills=0, decodes=1)
    assert (await answer(world, max_tokens=10)).ending == "finished"
    assert world.clock() >= 0.75 + FORGIVE_AFTER_S


@in_virtual_time
async def test_a_refusal_is_the_answer_and_is_not_tried_elsewhere() -> None:
    world = World(behave(d0=Behaviour(error=InvalidRequest("no"))), prefills=0, decodes=1)
    world.workers.add("d1", world.workers.fleet().replicas["d0"].role, max_model_len=103)
    client = await answer(world)
    assert isinstance(client.ending, InvalidRequest)
    assert len(world.workers.opened) == 1
