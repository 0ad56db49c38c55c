"""A worker's server against gateways that misbehave, over real sockets."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.frames import (
    PROTOCOL_VERSION,
    Abort,
    Delta,
    Deltas,
    Generate,
    Hello,
    Load,
    Ping,
    Pong,
    Refused,
    StreamFailed,
    Welcome,
    encode,
)
from cluster.dataplane.pool import WorkerPool
from kvtransfer.framing import frame
from tests.unit.dataplane.peers import (
    IDLE,
    RawGateway,
    RunningWorker,
    connected,
    leg,
    pool_settings,
    running_worker,
    until,
    worker_info,
)


def generate(stream: int, request_id: str, token_ids: bytes = b"\x01\0\0\0") -> Generate:
    return Generate(stream, request_id, "decode", token_ids, msgspec.Raw(msgspec.msgpack.encode({})))


@asynccontextmanager
async def worker_with_a_bystander() -> AsyncIterator[tuple[RunningWorker, WorkerPool]]:
    """Whatever the test does, the bystander's stream must go on."""
    async with running_worker(max_streams=4) as worker, WorkerPool(pool_settings()) as pool:
        await connected(pool, worker)
        stream = pool.open("w1", leg("bystander"))
        bystander = await worker.legs.started("bystander")
        yield worker, pool
        bystander.say(1, finish="stop")
        (delta,) = await stream.next()
        assert (delta.token_ids, bystander.aborted) == ([1], False)


async def test_a_greeted_gateway_learns_who_the_worker_is_and_how_busy() -> None:
    async with running_worker() as worker:
        gateway = await RawGateway.connect(worker.address)
        gateway.hello()
        await until(lambda: len(gateway.frames) == 3)
        assert gateway.frames[1:] == [Welcome(worker_info()), IDLE]


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        ({"secret": b"guessed"}, "wrong cluster secret"),
        ({"model": "another"}, "model fingerprint 'another', this worker serves 'model 1'"),
        ({"protocol": 99}, f"protocol version 99, this worker speaks {PROTOCOL_VERSION}"),
    ],
)
async def test_whoever_does_not_belong_is_refused_with_a_logged_reason(greeting, reason, caplog) -> None:
    async with worker_with_a_bystander() as (worker, _):
        gateway = await RawGateway.connect(worker.address)
        gateway.hello(**greeting)
        await gateway.gone()
        assert gateway.frames[1:] == [Refused(reason)]
        assert any(reason in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


async def test_a_stranger_writes_no_line_of_its_own_into_the_log(caplog) -> None:
    async with running_worker() as worker:
        gateway = await RawGateway.connect(worker.address)
        gateway.send(Hello(PROTOCOL_VERSION, "a\nERROR all is lost\x1b[31m", "model 1", b"guessed"))
        await gateway.gone()
        said = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
        assert len(said) == 1
        assert said[0].isprintable()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff\xff\xff\xff", "4294967295 bytes"),
        ((5000).to_bytes(4, "little"), "frame of 5000 bytes exceeds the maximum of 4096 bytes"),
        (b"\x01\0\0\0\xc1", "MessagePack"),
        (frame(b"\x91" * 4000), "bad frame: Expected `object`, got `array`"),
        (frame(b"\x82\xa1a" + b"\x91" * 4000), "bad frame: maximum recursion depth exceeded"),
        (encode(Pong(1)), "Invalid value"),
        (encode(Abort(1)), "Abort before the greeting"),
        (b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n", "bytes"),
        (b"\x05\0\0\0\x84\xa4type", "truncated"),
    ],
)
async def test_garbage_closes_its_connection_with_a_logged_reason(sent, reason, caplog) -> None:
    async with worker_with_a_bystander() as (worker, _):
        host, _, port = worker.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        async with asyncio.timeout(5):
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        assert any(reason in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([generate(1, "a"), generate(1, "b")], "stream 1 is open already"),
        ([Hello(PROTOCOL_VERSION, "again", "model 1", b"")], "a second greeting"),
    ],
)
async def test_a_broken_rule_after_the_greeting_closes_the_connection_and_aborts_its_streams(
    frames, reason, caplog
) -> None:
    async with worker_with_a_bystander() as (worker, _):
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        for frame in frames:
            gateway.send(frame)
        await gateway.gone()
        assert all(running.aborted for name, running in worker.legs.legs.items() if name != "bystander")
        assert any(reason in record.getMessage() for record in caplog.records)


async def test_more_streams_than_allowed_fail_alone() -> None:
    async with worker_with_a_bystander() as (worker, _):
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        for number in range(5):
            gateway.send(generate(number, f"r{number}"))
        await until(lambda: any(isinstance(frame, StreamFailed) for frame in gateway.frames))
        (failed,) = [frame for frame in gateway.frames if isinstance(frame, StreamFailed)]
        assert (failed.stream, failed.kind) == (4, "unavailable")
        assert worker.server.streams == 5


async def test_more_connections_than_allowed_are_closed() -> None:
    async with running_worker(max_connections=1) as worker:
        first = await RawGateway.connect(worker.address)
        host, _, port = worker.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await first.greet()


async def test_a_greeted_gateway_may_send_long_prompts() -> None:
    async with running_worker() as worker:
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        gateway.send(generate(1, "long", bytes(4_000_000)))
        assert len((await worker.legs.started("long")).generate.token_ids) == 4_000_000


async def test_a_gateway_that_is_gone_loses_its_streams_and_only_those() -> None:
    async with worker_with_a_bystander() as (worker, _):
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        gateway.send(generate(1, "theirs"))
        theirs = await worker.legs.started("theirs")
        gateway.connection.abort("gone")
        await until(lambda: theirs.aborted)
        assert worker.server.streams == 1


async def test_after_an_abort_nothing_follows_on_the_stream() -> None:
    async with running_worker() as worker:
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        gateway.send(generate(1, "r1"))
        running = await worker.legs.started("r1")
        gateway.send(Abort(1))
        gateway.send(Abort(77))
        await until(lambda: running.aborted)
        running.say(1)
        running.sink.fail("engine", "too late")
        gateway.send(Ping(5))
        await until(lambda: Pong(5) in gateway.frames)
        assert not any(isinstance(frame, Deltas | StreamFailed) for frame in gateway.frames)


async def test_a_slow_gateway_merges_what_waits_and_stalls_nobody() -> None:
    async with worker_with_a_bystander() as (worker, pool):
        slow = await RawGateway.connect(worker.address)
        await slow.greet()
        slow.send(generate(1, "slow"))
        running = await worker.legs.started("slow")
        quick_stream = pool.open("w1", leg("quick"))
        quick = await worker.legs.started("quick")
        slow.connection._transport.pause_reading()
        (connection,) = [g.connection for g in worker.server._gateways if g.name == "raw"]

        sent = 0
        while not connection.outbox._deltas or sent < 400:
            running.sink.delta(_long_delta(sent))
            quick.say(sent)
            sent += 1
            assert [d.token_ids for d in await quick_stream.next()] == [[sent - 1]]
            assert len(connection.outbox._deltas) <= 1
        running.say(sent, finish="stop")

        slow.connection._transport.resume_reading()
        await until(lambda: any(d.finish_reason for f in slow.frames if isinstance(f, Deltas) for _, d in f.items))
        deltas = [delta for frame in slow.frames if isinstance(frame, Deltas) for _, delta in frame.items]
        assert [i for delta in deltas for i in delta.token_ids] == list(range(sent + 1))
        assert len(deltas) < sent


def _long_delta(token_id: int):
    return Delta(0, [token_id], "x" * 32_768)


async def test_loads_reach_a_slow_gateway_only_as_the_latest() -> None:
    async with running_worker() as worker:
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        for running in range(50):
            worker.server.publish_load(msgspec.structs.replace(IDLE, running=running))
        await until(lambda: any(isinstance(f, Load) and f.running == 49 for f in gateway.frames))
        assert sum(isinstance(frame, Load) for frame in gateway.frames) == 2


async def test_a_gateway_that_never_greets_is_dropped() -> None:
    async with running_worker(connection=ConnectionSettings(connect_s=0.05)) as worker:
        gateway = await RawGateway.connect(worker.address)
        await gateway.gone()
        await until(lambda: repr(worker.server).endswith("gateways=0 streams=0>"))


async def test_a_gateway_that_falls_silent_is_dropped_with_its_streams() -> None:
    settings = ConnectionSettings(ping_s=0.05, dead_s=0.2)
    async with running_worker(connection=settings) as worker:
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        gateway.send(generate(1, "r1"))
        running = await worker.legs.started("r1")
        await gateway.gone()
        assert running.aborted


async def test_closing_the_server_tells_every_stream() -> None:
    async with running_worker() as worker:
        gateway = await RawGateway.connect(worker.address)
        await gateway.greet()
        gateway.send(generate(1, "r1"))
        running = await worker.legs.started("r1")
        await worker.server.close()
        await gateway.gone()
        assert gateway.frames[-1] == StreamFailed(1, "unavailable", "the worker is shutting down")
        assert running.aborted
