"""A worker's reports, its health, its end."""

import asyncio

import pytest

from cluster.coordinator.workers import HandedBack
from cluster.dataplane.frames import Delta, Handoff, KvEvents, WorkerInfo
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.wire_keys import pack_keys
from cluster.engines.engine import BlocksChanged
from cluster.errors import EngineFailed, ReplicaDraining, ReplicaLost
from cluster.workers.engine_watch import EngineWatch
from cluster.workers.load import STORE_GAUGES
from cluster.workers.pulse import PulseSettings
from cluster.workers.store_link import MAX_OWED, StoreLink
from kvtransfer.errors import RequestRefused, StoreLost
from kvtransfer.net_changes import MAX_TAKEN_KEYS
from kvtransfer.protocol import Watched
from routing.block_keys import extend, root
from routing.fleet import Role
from routing.index import Tier
from tests.fakes.engine import FakeEngine
from tests.fakes.store import FakeStore
from tests.unit.dataplane.peers import DEADLINE_S, pool_settings, until
from tests.unit.workers.running import handoff, leg, running_worker


class Listener:
    """A `KvListener` that notes everything."""

    def __init__(self) -> None:
        self.events: list[KvEvents] = []
        self.log: list[str] = []

    def kv_placed(self, replica_id: str, info: WorkerInfo) -> None:
        self.log.append(f"placed {replica_id} on {info.node_id}")

    def kv_events(self, replica_id: str, events: KvEvents) -> None:
        self.events.append(events)

    def kv_lost(self, replica_id: str) -> None:
        self.log.append(f"lost {replica_id}")

    def kv_dropped(self, replica_id: str) -> None:
        self.log.append(f"dropped {replica_id}")


async def test_a_load_shows_the_engine_the_legs_and_the_store() -> None:
    async with running_worker() as running:
        running.engine.loaded_blocks = 3.0
        running.open(leg())
        await until(lambda: running.pool.loads()["w1"].running == 1)
        load = running.pool.loads()["w1"]
        assert (load.counters["steps"], load.counters["legs_decode"]) == (1, 1)
        assert load.counters["loaded_bytes"] == 3 * 64
        more = {
            "store_up": 1,
            "store_evicted_blocks/room": 4,
            "store_evicted_blocks/share": 0,
            "store_evicted_blocks/watermark": 0,
            "store_evicted_blocks/dropped": 0,
            "store_checksum_failures/load": 1,
            "store_checksum_failures/verify": 0,
            "store_moved_blocks/pulled/tcp": 5,
            "store_moved_bytes/pulled/tcp": 320,
            "store_oldest_pin_seconds": 0,
            "store_oldest_writing_seconds": 2,
        }
        assert {name: value for name, value in load.gauges.items() if name not in STORE_GAUGES} == more
        assert load.gauges.keys() == {*more, *STORE_GAUGES}
        assert load.gauges["store_slots/free"] == 7


async def test_pins_that_are_gone_are_soon_not_shown_any_more() -> None:
    async with running_worker() as running:
        stream = running.open(leg(handoff=handoff()))
        (await running.store.waiting("h1")).end("ready")
        await until(lambda: running.pool.loads()["w1"].gauges["store_pins"] == 4)
        stream.close()
        began_s = asyncio.get_running_loop().time()
        await until(lambda: running.pool.loads()["w1"].gauges["store_pins"] == 0)
        assert asyncio.get_running_loop().time() - began_s < 1.0


async def test_an_idle_worker_reports_every_second() -> None:
    async with running_worker() as running:
        seen = [running.pool.loads()["w1"]]
        await until(lambda: running.pool.loads()["w1"] is not seen[0])


async def test_a_draining_worker_finishes_what_it_has_and_takes_nothing_new() -> None:
    async with running_worker() as running:
        stream = running.open(leg("old"))
        request = await running.engine.arrived("old")
        leaving = asyncio.ensure_future(running.worker.leave())
        await running.pool.wait_for(lambda fleet: not fleet.ready(Role.DECODE), DEADLINE_S)
        late = running.open(leg("new"))
        with pytest.raises(ReplicaDraining, match="draining"):
            await late.next()
        assert not leaving.done()
        request.say(1, finish="stop")
        assert [d.token_ids for d in await stream.next()] == [[1]]
        assert await leaving
        assert set(running.engine.requests) == {"old"}


async def test_who_leaves_gives_up_after_its_time() -> None:
    async with running_worker(leave_s=0.05) as running:
        running.open(leg())
        await running.engine.arrived("r1")
        assert not await running.worker.leave()


async def test_who_leaves_hands_back_what_does_not_end_and_is_gone_when_it_was_taken() -> None:
    async with running_worker(finish_s=60.0, leave_s=0.5) as running:
        stream = running.open(leg())
        request = await running.engine.arrived("r1")
        leaving = asyncio.ensure_future(running.worker.leave())
        with pytest.raises(HandedBack):
            await stream.next()
        stream.close()
        assert await leaving
        assert request.closed


async def test_gateways_hear_of_a_drain_in_the_same_moment() -> None:
    async with running_worker() as running:
        before = running.pool.loads()["w1"]
        running.worker.drain()
        async with asyncio.timeout(0.02):  # a load's usual interval is longer
            while running.pool.loads()["w1"] is before:  # noqa: ASYNC110  (frames come from a socket)
                await asyncio.sleep(0)
        assert running.pool.loads()["w1"].draining


async def test_after_its_time_to_finish_a_drain_asks_for_streams_to_be_moved_and_they_go_on_until_they_are() -> None:
    async with running_worker(finish_s=0.02) as running:
        stream = running.open(leg())
        request = await running.engine.arrived("r1")
        request.say(1)
        assert [d.token_ids for d in await stream.next()] == [[1]]
        running.worker.drain()
        with pytest.raises(HandedBack):
            await stream.next()
        assert running.worker.live_legs == 1
        request.say(2, finish="stop")
        assert [d.token_ids for d in await stream.next()] == [[2]]
        await until(lambda: running.worker.live_legs == 0)


async def test_a_drain_can_be_undone() -> None:
    async with running_worker(finish_s=0.01) as running:
        running.worker.drain()
        await until(lambda: running.pool.loads()["w1"].handing_back)
        running.worker.undrain()
        await running.pool.wait_for(lambda fleet: bool(fleet.ready(Role.DECODE)), DEADLINE_S)
        assert not running.pool.loads()["w1"].handing_back
        stream = running.open(leg())
        (await running.engine.arrived("r1")).say(1, finish="stop")
        assert [d.token_ids for d in await stream.next()] == [[1]]


async def test_closing_ends_streams_tasks_engine_and_store() -> None:
    async with running_worker() as running:
        stream = running.open(leg())
        request = await running.engine.arrived("r1")
        await running.worker.close()
        await running.worker.close()
        with pytest.raises(ReplicaLost, match="shutting down"):
            await stream.next()
        assert request.closed
        assert running.engine.closed
        assert running.store.lost.is_set()
        await running.pool.close()
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(EngineFailed):
            await running.worker.check_health()


async def test_an_ill_engine_makes_the_worker_unready_until_it_steps_again() -> None:
    async with running_worker() as running:
        running.engine.healthy = False
        await running.pool.wait_for(lambda fleet: not fleet.ready(Role.DECODE), DEADLINE_S)
        with pytest.raises(EngineFailed):
            await running.worker.check_health()
        running.engine.healthy = True
        await running.pool.wait_for(lambda fleet: bool(fleet.ready(Role.DECODE)), DEADLINE_S)


WEDGED_SOON = PulseSettings(stall_s=0.1, stall_steps=0.0, probe_s=0.01, look_s=0.01)


async def test_a_wedged_engine_fails_its_legs_at_once_and_gets_no_more_until_it_steps() -> None:
    async with running_worker(health=WEDGED_SOON) as running:
        streams = [running.open(leg("decoding")), running.open(leg("waiting", handoff=handoff("h1")))]
        request = await running.engine.arrived("decoding")
        await running.store.waiting("h1")
        request.say(1)
        assert [d.token_ids for d in await streams[0].next()] == [[1]]
        running.engine.goes.clear()
        for stream in streams:
            with pytest.raises(EngineFailed, match="has made no step"):
                await stream.next()
        assert not running.pool.fleet().ready(Role.DECODE), "told after the streams"
        with pytest.raises(EngineFailed, match="no step"):
            await running.worker.check_health()
        await until(lambda: request.closed)
        with pytest.raises(EngineFailed, match="no step"):
            await running.open(leg("new")).next()
        running.engine.goes.set()
        await running.pool.wait_for(lambda fleet: bool(fleet.ready(Role.DECODE)), DEADLINE_S)
        await running.worker.check_health()


async def test_an_engine_is_timed_as_soon_as_it_is_watched_whatever_it_has_done_before() -> None:
    """How long it may take for a prompt follows from that."""
    engine = FakeEngine()
    engine.steps = 5
    watch = EngineWatch(engine, PulseSettings(probe_s=60.0, look_s=0.01), lambda: None)
    watching = asyncio.create_task(watch.run())
    await until(lambda: engine.steps == 6)
    watching.cancel()
    await asyncio.wait([watching])


async def test_an_engine_that_died_is_noticed_by_itself_and_stays_dead() -> None:
    rarely = PulseSettings(probe_s=60.0, look_s=0.01)
    async with running_worker(health=rarely) as running:
        await until(lambda: running.engine.steps > 0)
        running.engine.dead = True
        await running.pool.wait_for(lambda fleet: not fleet.ready(Role.DECODE), DEADLINE_S)
        with pytest.raises(EngineFailed, match="died"):
            await running.worker.check_health()


async def test_an_idle_engine_that_does_not_answer_is_wedged() -> None:
    async with running_worker(health=WEDGED_SOON) as running:
        await until(lambda: running.engine.steps > 0)
        running.engine.goes.clear()
        await running.pool.wait_for(lambda fleet: not fleet.ready(Role.DECODE), DEADLINE_S)
        running.engine.goes.set()
        await running.pool.wait_for(lambda fleet: bool(fleet.ready(Role.DECODE)), DEADLINE_S)


async def test_a_wedged_engine_does_not_hold_up_a_drain() -> None:
    async with running_worker(leave_s=DEADLINE_S, health=WEDGED_SOON) as running:
        running.open(leg())
        await running.engine.arrived("r1")
        running.engine.goes.clear()
        assert await running.worker.leave()


async def test_gateways_hear_of_the_blocks_of_the_device_and_of_the_store() -> None:
    listener = Listener()
    keys = extend(root(None, None), [1, 2, 3, 4], 4)
    async with running_worker(kv=listener) as running:
        await until(lambda: len(listener.events) == 2)
        assert listener.events == [KvEvents(0, "device", True, b"", b""), KvEvents(1, "host", True, b"", b"")]
        running.store.changes.put_nowait(Watched(0, False, [b"h"], [None], []))
        running.engine.changes.put_nowait([BlocksChanged("stored", [b"h"], None, [1, 2, 3, 4])])
        await until(lambda: len(listener.events) == 4)
        assert listener.events[2:] == [
            KvEvents(2, "device", False, pack_keys(keys), b""),
            KvEvents(3, "host", False, pack_keys(keys), b""),
        ]
        await until(lambda: running.store.labels == {b"h": keys[0]})
        running.store.lose()
        await until(lambda: len(listener.events) == 5)
        assert listener.events[4] == KvEvents(4, "host", False, b"", pack_keys(keys))
        await running.worker.close()
        await until(lambda: listener.log == ["placed w1 on node", "lost w1"])
    assert listener.log == ["placed w1 on node", "lost w1", "dropped w1"]


async def test_a_device_that_is_not_heard_any_more_holds_nothing() -> None:
    listener = Listener()
    async with running_worker(kv=listener) as running:
        running.engine.changes.put_nowait([BlocksChanged("stored", [b"h"], None, [1, 2, 3, 4])])
        await until(lambda: len(running.worker._blocks.snapshot(Tier.DEVICE)) == 1)
        running.engine.changes.put_nowait(EngineFailed("told to die"))
        await until(lambda: len(running.worker._blocks.snapshot(Tier.DEVICE)) == 0)


async def test_a_store_that_cannot_be_followed_is_left_for_a_new_connection() -> None:
    async with running_worker() as running:
        link, again = running.worker._store, FakeStore("tcp://again")

        async def connect() -> FakeStore:
            return again

        assert link is not None
        link._connect = connect
        running.store.changes.put_nowait(Watched(0, False, [b"h"], [None], []))
        running.store.changes.put_nowait(RequestRefused("another watch began"))
        await until(lambda: link.address == "tcp://again")
        assert running.store.lost.is_set()
        assert running.worker._blocks._in_store == set()


async def test_a_full_store_gets_its_labels_in_parts_that_fit_into_a_frame() -> None:
    async with running_worker() as running:
        sizes, label = [], running.store.label

        async def counted(labels):
            sizes.append(len(labels))
            return await label(labels)

        running.store.label = counted
        labels = {number.to_bytes(4): number for number in range(2 * MAX_TAKEN_KEYS + 1)}
        running.worker._store.label(labels)
        await until(lambda: running.store.labels == labels)
        assert sizes == [MAX_TAKEN_KEYS, MAX_TAKEN_KEYS, 1]


async def test_a_gateway_hears_of_the_work_of_the_others() -> None:
    async with running_worker() as running, WorkerPool(pool_settings()) as other:
        other.update({"w1": running.worker.address})
        await other.wait_for(lambda fleet: bool(fleet.replicas), DEADLINE_S)
        running.engine.changes.put_nowait([BlocksChanged("stored", [b"h"], None, [1, 2, 3, 4])])
        await until(lambda: len(running.worker._blocks.snapshot(Tier.DEVICE)) == 1)
        running.open(leg("r1", outputs=3))
        request = await running.engine.arrived("r1")
        await until(lambda: other.fleet().replicas["w1"].load.others_requests == 3)
        others = other.fleet().replicas["w1"].load
        mine = running.pool.fleet().replicas["w1"].load
        assert (others.others_prefill_tokens, mine.others_requests, mine.others_prefill_tokens) == (1, 0, 0)
        request.say(7)
        other.open("w1", leg("r2", role="prefill", handoff=handoff("h2")))
        await running.engine.arrived("r2")
        await until(lambda: running.pool.fleet().replicas["w1"].load.others_prefill_tokens == 1)
        assert running.pool.fleet().replicas["w1"].load.others_requests == 1
        assert other.fleet().replicas["w1"].load.others_requests == 3
        await until(lambda: other.fleet().replicas["w1"].load.others_prefill_tokens == 0)


async def test_a_leg_that_waits_for_blocks_counts_its_prompt_only_when_they_do_not_come() -> None:
    async with running_worker() as running, WorkerPool(pool_settings()) as other:
        other.update({"w1": running.worker.address})
        await other.wait_for(lambda fleet: bool(fleet.replicas), DEADLINE_S)
        running.open(leg("r1", handoff=handoff("h1")))
        wait = await running.store.waiting("h1")
        await until(lambda: other.fleet().replicas["w1"].load.others_requests == 1)
        assert other.fleet().replicas["w1"].load.others_prefill_tokens == 0
        wait.end("failed", present=0)
        await until(lambda: other.fleet().replicas["w1"].load.others_prefill_tokens == 5)


async def test_a_store_that_comes_back_elsewhere_is_made_known() -> None:
    async with running_worker() as running:
        again = FakeStore("tcp://elsewhere")

        async def connect() -> FakeStore:
            return again

        link = running.worker._store
        assert link is not None
        link._connect = connect
        running.store.lose()
        await until(lambda: running.pool.info("w1").store_address == "tcp://elsewhere")
        stream = running.open(leg())
        (await running.engine.arrived("r1")).say(5, finish="stop")
        assert [Delta(d.index, d.token_ids) for d in await stream.next()] == [Delta(0, [5])]


async def test_a_hand_off_let_go_while_the_store_was_away_is_let_go_once_it_is_back() -> None:
    """The engine's own connection may have been back before the worker's, and have handed over."""
    async with running_worker() as running:
        again = FakeStore("tcp://again")

        async def connect() -> FakeStore:
            return again

        running.store.lose()
        await until(lambda: running.pool.loads()["w1"].gauges["store_up"] == 0)
        link = running.worker._store
        assert link is not None
        running.pool.let_go("w1", Handoff("h1"))
        await until(lambda: "h1" in link._owed)
        link._connect = connect
        await until(lambda: again.released == {"h1": 1})
        await until(lambda: not link._owed)


async def test_no_more_than_a_bound_is_remembered_of_what_was_let_go() -> None:
    async def nobody() -> FakeStore:
        raise StoreLost("away")

    link = StoreLink(nobody)
    for number in range(MAX_OWED + 1):
        await link.release(str(number))
    assert list(link._owed) == [str(number) for number in range(1, MAX_OWED + 1)]
