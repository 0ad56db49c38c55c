"""A gateway's pool against real workers over real sockets."""

import asyncio

import msgspec
import pytest

from cluster.coordinator.workers import HandedBack
from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.frames import Delta, Handoff
from cluster.dataplane.pool import WorkerPool
from cluster.errors import (
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    ReplicaDraining,
    ReplicaLost,
)
from routing.fleet import Replica, ReplicaLoad, Role
from tests.unit.dataplane.peers import (
    DEADLINE_S,
    IDLE,
    MODEL,
    connected,
    leg,
    pool_settings,
    running_worker,
    until,
    worker_info,
)


class BreaksAtLoss:
    """A `KvListener` with a bug."""

    def kv_placed(self, replica_id, info):
        pass

    def kv_events(self, replica_id, events):
        pass

    def kv_lost(self, replica_id):
        raise RuntimeError("a bug")

    def kv_dropped(self, replica_id):
        pass


QUICK = ConnectionSettings(connect_s=0.5, ping_s=0.05, dead_s=0.2)


async def test_a_connected_worker_is_in_the_fleet_as_it_describes_itself() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        worker.server.publish_load(
            type(IDLE)(
                running=3, waiting=2, held=1, queued_prefill_tokens=70, kv_usage=0.5, healthy=True, draining=False
            )
        )
        await until(lambda: pool.fleet().replicas["w1"].load.running == 3)
        assert pool.fleet().replicas == {
            "w1": Replica("w1", Role.DECODE, "node", "kv", 16, 4096, 0, True, ReplicaLoad(3, 2, 1, 70, 0.5))
        }
        assert pool.info("w1") == worker_info()
        assert pool.nodes() == {"w1": "node"}


async def test_a_leg_arrives_whole_and_its_tokens_come_back() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg(token_ids=[0, 7, 4_294_967_295]))
        running = await worker.legs.started("r1")
        assert running.generate.token_ids == bytes(4) + (7).to_bytes(4, "little") + b"\xff" * 4
        running.say(5)
        assert await stream.next() == [Delta(0, [5], " 5")]
        running.say(6, finish="stop")
        assert await stream.next() == [Delta(0, [6], " 6", "stop")]
        assert (worker.server.streams, pool.statistics()[0].streams) == (0, 0)


async def test_deltas_that_wait_are_merged_for_each_output() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg(outputs=2))
        running = await worker.legs.started("r1")
        first = await _next_after(stream, lambda: (running.say(1), running.say(11, index=1), running.say(2)))
        assert first == [Delta(0, [1, 2], " 1 2"), Delta(1, [11], " 11")]
        running.sink.delta(Delta(1, [12], " 12", "stop"))
        running.say(3, finish="length")
        assert await stream.next() == [Delta(1, [12], " 12", "stop"), Delta(0, [3], " 3", "length")]
        assert not stream.open


async def _next_after(stream, act):
    act()
    return await stream.next()


async def test_a_hundred_interleaved_streams_each_get_their_own_tokens() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        streams = {i: pool.open("w1", leg(f"r{i}")) for i in range(100)}
        legs = {i: await worker.legs.started(f"r{i}") for i in range(100)}

        async def produce() -> None:
            for step in range(20):
                for i, running in legs.items():
                    running.say(1000 * i + step, finish="stop" if step == 19 else None)
                await asyncio.sleep(0)

        async def consume(i: int) -> list[int]:
            token_ids: list[int] = []
            while streams[i].open or len(token_ids) < 20:
                for delta in await streams[i].next():
                    token_ids += delta.token_ids
            return token_ids

        *answers, _ = await asyncio.gather(*(consume(i) for i in range(100)), produce())
        assert answers == [[1000 * i + step for step in range(20)] for i in range(100)]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("invalid", InvalidRequest),
        ("engine", EngineFailed),
        ("unavailable", ReplicaLost),
        ("deadline", DeadlineExceeded),
        ("draining", ReplicaDraining),
    ],
)
async def test_a_failure_is_raised_after_the_tokens_that_came_before_it(kind, error) -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg())
        running = await worker.legs.started("r1")
        running.say(1)
        running.sink.fail(kind, "because")
        assert await stream.next() == [Delta(0, [1], " 1")]
        with pytest.raises(error, match="because"):
            await stream.next()


async def test_a_worker_that_hands_back_has_its_streams_told_once_a_second_after_what_they_have() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg())
        running = await worker.legs.started("r1")
        running.say(1)
        back = msgspec.structs.replace(IDLE, draining=True, handing_back=True)
        worker.server.publish_load(back)
        await pool.wait_for(lambda fleet: not fleet.ready(Role.DECODE), DEADLINE_S)
        assert [d.token_ids for d in await stream.next()] == [[1]]
        running.say(2)
        await until(lambda: "waiting=1" in repr(stream))
        with pytest.raises(HandedBack):
            await stream.next()
        worker.server.publish_load(msgspec.structs.replace(back, running=1))
        running.say(3, finish="stop")
        tokens: list[int] = []
        while stream.open or not tokens:  # nothing but tokens within the second
            tokens += [token for delta in await stream.next() for token in delta.token_ids]
        assert tokens == [2, 3]


async def test_closing_a_stream_aborts_its_leg_and_no_other() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        one, _other = pool.open("w1", leg("r1")), pool.open("w1", leg("r2"))
        running = await worker.legs.started("r1")
        kept = await worker.legs.started("r2")
        one.close()
        one.close()
        await until(lambda: running.aborted)
        assert (kept.aborted, worker.server.streams) == (False, 1)
        with pytest.raises(ReplicaLost):
            await one.next()


async def test_cancelling_next_loses_no_token() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg())
        running = await worker.legs.started("r1")
        waiting = asyncio.ensure_future(stream.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        running.say(1)
        assert await stream.next() == [Delta(0, [1], " 1")]


async def test_a_hand_off_that_nobody_comes_for_is_let_go() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        pool.let_go("w1", Handoff("h1", "tcp://store"))
        pool.let_go("nobody", Handoff("h2", "tcp://other store"))
        pool.let_go("w1", Handoff("h3", "tcp://where it was"))
        await until(lambda: worker.legs.gone == ["h1", "h3"])


async def test_a_hand_off_of_a_worker_that_is_gone_is_let_go_by_another_with_its_store() -> None:
    async with running_worker("w2") as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        pool.let_go("w1", Handoff("h1", "tcp://store"))
        await until(lambda: worker.legs.gone == ["h1"])


async def test_a_node_s_store_is_known_by_its_workers() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        assert pool.store_on("node", "kv") == "tcp://store"
        assert pool.store_on("node", "other blocks") == pool.store_on("elsewhere", "kv") == ""


async def test_source_lost_reaches_the_leg() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg())
        running = await worker.legs.started("r1")
        stream.source_lost()
        await until(lambda: running.lost_source)


async def test_a_lost_worker_fails_its_streams_and_is_found_again() -> None:
    async with WorkerPool(pool_settings()) as pool:
        async with running_worker() as worker:
            await connected(pool, worker)
            stream = pool.open("w1", leg())
            await worker.legs.started("r1")
            port = int(worker.address.rpartition(":")[2])
        with pytest.raises(ReplicaLost, match="shutting down"):
            await stream.next()
        await until(lambda: not pool.fleet().replicas)
        with pytest.raises(ReplicaLost):
            pool.open("w1", leg())
        async with running_worker() as again:
            await again.server.close()
            await again.server.listen("127.0.0.1", port)
            await pool.wait_for(lambda fleet: bool(fleet.ready(Role.DECODE)), DEADLINE_S)
            assert pool.statistics()[0].connects == 2


async def test_a_link_that_breaks_in_a_way_nobody_expects_is_tried_again_and_told_of_each_time(
    monkeypatch, caplog
) -> None:
    loop = asyncio.get_running_loop()
    connect, attempts = loop.create_connection, []

    async def breaks_twice(*arguments, **more):
        attempts.append(arguments)
        if len(attempts) <= 2:
            raise RuntimeError("nobody expects this")
        return await connect(*arguments, **more)

    monkeypatch.setattr(loop, "create_connection", breaks_twice)
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
    assert len(attempts) == 3
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "the link to worker w1 broke"
    ] * 2


async def test_a_link_reconnects_even_if_whoever_listens_to_its_blocks_breaks_at_the_loss() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings(), BreaksAtLoss()) as pool:
        await connected(pool, worker)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        for link in pool._links.values():
            link._connection.abort("the test says so")
        await until(lambda: pool.statistics()[0].connects == 2)


async def test_a_worker_that_is_not_listed_any_more_finishes_its_streams_first() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg())
        running = await worker.legs.started("r1")
        pool.update({})
        assert not pool.fleet().replicas["w1"].ready
        assert pool.store_on("node", "kv") == "tcp://store"
        with pytest.raises(ReplicaLost):
            pool.open("w1", leg("r2"))
        running.say(1, finish="stop")
        assert await stream.next() == [Delta(0, [1], " 1", "stop")]
        await until(lambda: worker.server.gateways == 0 and not pool.statistics())
        assert pool.fleet().replicas == {}


async def test_a_replica_is_not_ready_while_it_drains_or_is_ill() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        for change in ({"draining": True}, {"healthy": False}):
            worker.server.publish_load(type(IDLE)(**{**_fields(IDLE), **change}))
            await until(lambda: not pool.fleet().ready(Role.DECODE))
            worker.server.publish_load(IDLE)
            await until(lambda: bool(pool.fleet().ready(Role.DECODE)))


def _fields(load):
    return {name: getattr(load, name) for name in load.__struct_fields__}


async def test_a_silent_worker_is_dropped() -> None:
    """A listener that accepts and never says a word."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _r, w: accepted.append(w), "127.0.0.1", 0)
    async with WorkerPool(pool_settings(connection=QUICK)) as pool:
        pool.update({"w1": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"})
        await until(lambda: bool(pool.statistics()[0].last_error))
        assert pool.fleet().replicas == {}
    for writer in accepted:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_pings_keep_an_idle_connection_alive_and_silence_after_the_greeting_ends_it() -> None:
    answering = ConnectionSettings(ping_s=0.05, dead_s=30.0)
    async with running_worker(connection=answering) as worker, WorkerPool(pool_settings(connection=QUICK)) as pool:
        await connected(pool, worker)
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > began + 3 * QUICK.dead_s)
        assert pool.info("w1") == worker_info()
        assert pool.nodes() == {"w1": "node"}
        assert pool.statistics()[0].connects == 1
        assert pool.fleet().ready(Role.DECODE) == []  # its load is stale: no report came for `dead_s`


async def test_a_worker_that_refuses_is_reported_and_tried_again() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings(model="another")) as pool:
        pool.update({"w1": worker.address})
        await until(lambda: "fingerprint" in pool.statistics()[0].last_error)
        assert pool.fleet().replicas == {}
        assert MODEL in pool.statistics()[0].last_error


async def test_ids_the_wire_cannot_carry_are_the_requests_fault() -> None:
    async with running_worker() as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        for bad in ([-1], [1 << 32], ["x"]):
            with pytest.raises(InvalidRequest):
                pool.open("w1", leg(token_ids=bad))
        assert pool.statistics()[0].streams == 0


async def test_closing_the_pool_fails_its_streams_and_leaves_no_task() -> None:
    async with running_worker() as worker:
        async with WorkerPool(pool_settings()) as pool:
            await connected(pool, worker)
            stream = pool.open("w1", leg())
            running = await worker.legs.started("r1")
        with pytest.raises(ReplicaLost):
            await stream.next()
        await until(lambda: running.aborted and worker.server.gateways == 0)
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("leave", ["close", "unlist"])
async def test_letting_go_of_a_worker_in_the_middle_of_the_greeting_leaves_nothing(leave) -> None:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _r, w: accepted.append(w), "127.0.0.1", 0)
    async with WorkerPool(pool_settings()) as pool:
        pool.update({"w1": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"})
        await until(lambda: bool(accepted))
        if leave == "unlist":
            pool.update({})
            await until(lambda: not pool.statistics())
    assert pool.statistics() == []
    for writer in accepted:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()
    assert len(asyncio.all_tasks()) == 1


async def test_a_worker_that_moved_is_found_at_its_new_address() -> None:
    async with running_worker() as old, running_worker() as new, WorkerPool(pool_settings()) as pool:
        await connected(pool, old)
        stream = pool.open("w1", leg("r1"))
        before = await old.legs.started("r1")
        await connected(pool, new)
        pool.open("w1", leg("r2"))
        await new.legs.started("r2")
        before.say(1, finish="stop")
        assert [delta.token_ids for delta in await stream.next()] == [[1]]
        await until(lambda: [link.address for link in pool.statistics()] == [new.address])
