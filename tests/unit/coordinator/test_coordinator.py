"""What the coordinator does in each single case, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.coordinator import CoordinatorSettings
from cluster.coordinator.lifecycle import State
from cluster.coordinator.observer import Ended, Timings
from cluster.coordinator.patience import FORGIVE_AFTER_S, LONGEST_PAUSE_S
from cluster.coordinator.timeline import Timeline
from cluster.coordinator.workers import Leg
from cluster.dataplane.frames import Emitted, Handoff, LegReport
from cluster.errors import (
    CannotContinue,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    NoReplicaReady,
    Overloaded,
    ReplicaDraining,
    ReplicaLost,
)
from routing.fleet import Fleet, Role
from routing.router import Decision, Predicted, Rng, RouteRequest, Work
from tests.simulation.fake_workers import Behaviour, reference, text
from tests.simulation.recorder import Recorder
from tests.simulation.virtual_clock import run_virtual
from tests.simulation.world import SETTINGS, Client, World, request

P = Behaviour(start_s=1.0)
D = Behaviour(start_s=0.5, gap_s=0.1)


def behave(**by_replica: Behaviour) -> Callable[[str, Leg], Behaviour]:
    """Fates by replica; the others do well."""
    default = {"prefill": P, "decode": D}
    return lambda replica_id, leg: by_replica.get(replica_id, by_replica.get("default", default[leg.role]))


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test in virtual time; afterwards nothing may be left."""

    def run() -> None:
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def answer(world: World, **shape: int) -> Client:
    client = Client(request(**shape))
    await client.run(world.coordinator, None, 0.0)
    client.check()
    world.check_idle()
    return client


async def first_on(world: World, replica_id: str, **shape: int) -> Client:
    """An answer whose first attempt is on this decode replica: the others are not there yet."""
    others = [
        r for r in world.workers.fleet().replicas.values() if r.role is Role.DECODE and r.replica_id != replica_id
    ]
    for other in others:
        world.workers.forget(other.replica_id)
        asyncio.get_running_loop().call_later(0.01, world.workers.add, other.replica_id, Role.DECODE)
    return await answer(world, **shape)


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


class Pair:
    """A router that has seen one pair only, and predicts."""

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        work = Work(100, 0.5, 4, 102, 7, prefill_keys=(1, 2), decode_keys=(3,))
        return Decision("d0", "p0", "the pair", Predicted(0.0, 0.5, 0.1, 0.1, 0.1, 100, 0), work)

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return None


@in_virtual_time
async def test_what_was_predicted_of_a_pair_is_not_held_against_decode_alone() -> None:
    world = World(behave(), prefills=1, decodes=1, router=Pair())
    world.workers.kill("p0")
    await answer(world)
    (decision,) = world.observer.decisions
    assert (decision.prefill, decision.predicted, world.observer.predictions) == (None, None, [])
    assert decision.work == Work(100, 0.5, 4, 102, 7, prefill_keys=(3,), decode_keys=(3,))


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


@in_virtual_time
async def test_a_request_that_takes_too_long_fails_at_its_deadline() -> None:
    world = World(behave(d0=Behaviour(hangs=True)), prefills=0, decodes=1)
    client = await answer(world)
    assert isinstance(client.ending, DeadlineExceeded)
    assert world.clock() == pytest.approx(SETTINGS.request_s)


@in_virtual_time
async def test_a_client_that_dawdles_past_the_deadline_holds_nothing_and_is_told() -> None:
    world = World(behave(), prefills=0, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=500))
    await anext(stream)
    await asyncio.sleep(SETTINGS.request_s)
    assert not world.workers.streams
    assert world.ledger.statistics().open_leases == 0
    with pytest.raises(DeadlineExceeded, match="longer than 20 s"):
        await anext(stream)
    world.check_idle()


@in_virtual_time
async def test_decode_does_not_wait_for_a_prefill_that_hangs_longer_than_the_handoff_deadline() -> None:
    world = World(behave(p0=Behaviour(hangs=True)), prefills=1, decodes=1)
    assert (await answer(world)).ending == "finished"
    assert world.observer.endings[0].timings.ttft_s == pytest.approx(SETTINGS.handoff_s + 0.5)


@pytest.mark.parametrize(
    ("after_s", "state"), [(0.5, State.PREFILLING), (1.0005, State.WAITING), (1.15, State.DECODING)]
)
def test_cancelling_closes_both_legs_at_once_in_every_state(after_s: float, state: State) -> None:
    async def main() -> None:
        world = World(behave(), prefills=1, decodes=1)
        work = asyncio.ensure_future(Client(request(max_tokens=50)).run(world.coordinator, None, 0.0))
        await asyncio.sleep(after_s)
        assert world.coordinator.statistics().in_flight == {state: 1}
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert world.clock() == pytest.approx(after_s)
        world.check_idle()
        assert world.observer.endings[0].outcome == "cancelled"

    run_virtual(main())


@in_virtual_time
async def test_closing_the_iterator_between_two_steps_closes_the_legs() -> None:
    world = World(behave(), prefills=1, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    await stream.aclose()
    world.check_idle()
    assert world.coordinator.statistics().ended == {State.CANCELLED: 1}


@in_virtual_time
async def test_nothing_is_held_for_a_client_that_does_not_fetch_the_end() -> None:
    world = World(behave(), prefills=1, decodes=1)
    stream = world.coordinator.generate(request(max_tokens=1))
    await anext(stream)
    assert not world.workers.streams
    assert world.ledger.statistics().open_leases == 0
    await stream.aclose()
    assert world.coordinator.statistics().ended == {State.FINISHED: 1}


@in_virtual_time
async def test_decode_that_ends_while_prefill_runs_closes_prefill() -> None:
    settings = replace(SETTINGS, handoff_s=0.1)
    world = World(behave(p0=Behaviour(hangs=True)), prefills=1, decodes=1, settings=settings)
    assert (await answer(world)).ending == "finished"


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


def bounded(max_outputs: int, waiting: int, max_wait_s: float | None = None) -> CoordinatorSettings:
    admission = AdmissionSettings(max_outputs, max_wait_s, LineSettings(max_requests=waiting))
    return replace(SETTINGS, admission=admission)


@in_virtual_time
async def test_what_may_neither_go_nor_wait_is_refused_before_anything_is_streamed() -> None:
    world = World(behave(), settings=bounded(3, 0))
    stream = world.coordinator.generate(request(outputs=2, max_tokens=50))
    await anext(stream)
    with pytest.raises(Overloaded, match="max_waiting_requests"):
        await anext(world.coordinator.generate(request(outputs=2)))
    with pytest.raises(InvalidRequest, match="4 outputs"):
        world.coordinator.admit(4)
    await stream.aclose()
    assert world.observer.refusals == ["overloaded", "invalid_request"]
    world.check_idle()


@in_virtual_time
async def test_what_waits_goes_as_soon_as_there_is_room() -> None:
    world = World(behave(), settings=bounded(1, 1))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    second = Client(request(name="second"))
    waiting = asyncio.ensure_future(second.run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.5)
    assert world.coordinator.statistics().admission.waiting_requests == {0: 1}
    assert len(world.workers.opened) == 2
    await stream.aclose()
    await waiting
    assert second.ending == "finished"
    world.check_idle()


@in_virtual_time
async def test_a_clients_time_begins_when_it_comes_not_when_it_is_let_in() -> None:
    world = World(behave(), settings=replace(bounded(1, 1), request_s=2.5))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    second = Client(request(name="second"))
    waiting = asyncio.ensure_future(second.run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.75)
    await stream.aclose()
    await waiting
    alone_s, in_all_s = world.observer.ttft_s
    assert in_all_s == pytest.approx(0.75 + alone_s)
    ended = world.observer.endings[1]
    assert (ended.outcome, ended.timings.line_s) == ("finished", pytest.approx(0.75))
    assert ended.timings.total_s == pytest.approx(0.75 + alone_s + 0.3)
    world.check_idle()


@in_virtual_time
async def test_time_in_line_is_part_of_the_time_that_a_request_may_take() -> None:
    world = World(behave(), settings=replace(bounded(1, 1), request_s=2.0))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    begun = world.clock()
    second = Client(request(name="second", max_tokens=50))
    waiting = asyncio.ensure_future(second.run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.25)
    await stream.aclose()
    await waiting
    assert (type(second.ending), world.clock() - begun) == (DeadlineExceeded, pytest.approx(2.0))
    world.check_idle()


@in_virtual_time
async def test_a_client_that_leaves_the_line_is_out_of_it_at_once() -> None:
    world = World(behave(), settings=bounded(1, 1))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    waiting = asyncio.ensure_future(Client(request()).run(world.coordinator, None, 0.0))
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not world.coordinator.statistics().admission.waiting_requests
    await stream.aclose()
    assert world.observer.refusals == ["cancelled"]
    world.check_idle()


@in_virtual_time
async def test_who_has_waited_as_long_as_allowed_is_told_so() -> None:
    world = World(behave(), settings=bounded(1, 1, max_wait_s=2.0))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    begun = world.clock()
    with pytest.raises(Overloaded, match="max_wait_s"):
        await anext(world.coordinator.generate(request()))
    assert world.clock() - begun == pytest.approx(1.5)
    await stream.aclose()
    world.check_idle()


@in_virtual_time
async def test_one_with_more_right_to_wait_crowds_another_out() -> None:
    world = World(behave(), settings=bounded(1, 1))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    later = Client(replace(request(), priority=1))
    sooner = Client(replace(request(), priority=-1))
    waiting = [asyncio.ensure_future(each.run(world.coordinator, None, 0.0)) for each in (later, sooner)]
    await asyncio.sleep(0.1)
    assert isinstance(later.ending, Overloaded)
    await stream.aclose()
    await asyncio.gather(*waiting)
    assert sooner.ending == "finished"
    world.check_idle()


class Foresees(Pair):
    """A router that says what awaits a request."""

    def __init__(self, queue_s: float) -> None:
        self._queue_s = queue_s

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        return Predicted(self._queue_s, 0.5, 0.1, 0.1, 0.1, 100, 0)


@in_virtual_time
async def test_one_whose_client_waits_less_than_the_prompt_takes_is_refused_for_good() -> None:
    world = World(behave(), prefills=1, decodes=1, router=Foresees(0.0))
    with pytest.raises(DeadlineExceeded, match=r"0\.5 s"):
        await anext(world.coordinator.generate(replace(request(), first_token_s=0.5)))
    assert (world.observer.refusals, world.workers.opened) == (["deadline_exceeded"], [])
    world.check_idle()


@in_virtual_time
async def test_one_whose_client_waits_less_than_the_line_takes_is_refused_at_once() -> None:
    world = World(behave(), prefills=1, decodes=1, router=Foresees(0.3))
    stream = world.coordinator.generate(request(max_tokens=50))
    await anext(stream)
    patient = Client(replace(request(), first_token_s=2.5))
    await patient.run(world.coordinator, None, 0.0)
    assert patient.ending == "finished"
    begun = world.clock()
    with pytest.raises(Overloaded, match="its client"):
        await anext(world.coordinator.generate(replace(request(), first_token_s=0.9)))
    assert world.clock() == begun
    await stream.aclose()
    world.check_idle()


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
