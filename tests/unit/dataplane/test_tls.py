"""The data plane over TLS, and who is refused at its door."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.frames import Delta
from cluster.dataplane.pool import WorkerPool
from kvtransfer.tls import Identity, TlsFiles
from tests.fuzz.footprint import Footprint
from tests.support.authority import Authority
from tests.unit.dataplane.peers import DEADLINE_S, RunningWorker, connected, leg, pool_settings, running_worker, until

CONNECT_S = 1.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def settings(authority: Authority) -> ConnectionSettings:
    return ConnectionSettings(connect_s=CONNECT_S, tls=Identity(authority.issue()))


@asynccontextmanager
async def worker_in_use(settings: ConnectionSettings) -> AsyncIterator[RunningWorker]:
    """A worker with a gateway that is served before and after."""
    async with running_worker(connection=settings) as worker, WorkerPool(pool_settings(connection=settings)) as pool:
        await connected(pool, worker)
        await answers(pool, worker, "before")
        yield worker
        await answers(pool, worker, "after")
        assert pool.statistics()[0].connects == 1


async def answers(pool: WorkerPool, worker: RunningWorker, request: str) -> None:
    stream = pool.open("w1", leg(request))
    running = await worker.legs.started(request)
    running.say(7, finish="stop")
    assert await stream.next() == [Delta(0, [7], " 7", "stop")]


async def knock(worker: RunningWorker, context: ssl.SSLContext | None, said: bytes = b"") -> None:
    """Return when the stranger is shut out, in its handshake or later: as its version of TLS has it."""
    host, _, port = worker.address.rpartition(":")
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        try:
            writer.write(said)
            async with asyncio.timeout(DEADLINE_S):
                assert await reader.read() == b""
        finally:
            writer.close()


def with_files(files: TlsFiles) -> ssl.SSLContext:
    """A stranger's: shows what it has, believes everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(files.certificate, files.key)
    return context


def without_files() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def of_old_version(files: TlsFiles) -> ssl.SSLContext:
    context = with_files(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


Knock = tuple[Callable[[Authority, Path], ssl.SSLContext | None], bytes, str]

STRANGERS: dict[str, Knock] = {
    "expired": (lambda ours, _: with_files(ours.issue("old", days=-1)), b"", "certificate has expired"),
    "another authority": (lambda _, at: with_files(Authority(at / "b").issue()), b"", "unable to get local issuer"),
    "no certificate": (lambda *_: without_files(), b"", "shows no certificate"),
    "an old version": (lambda ours, _: of_old_version(ours.issue("it")), b"", "unsupported protocol"),
    "plaintext": (lambda *_: None, b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"),
    "silence": (lambda *_: None, b"", "SSL handshake is taking longer"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_strangers_are_refused_for_a_reason_that_is_said_once(
    stranger: str,
    authority: Authority,
    settings: ConnectionSettings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make, said, reason = STRANGERS[stranger]
    context = make(authority, tmp_path)
    async with worker_in_use(settings) as worker:
        before = Footprint.now()
        for _ in range(2):
            await knock(worker, context, said)
        await until(lambda: worker.server.refusals.count == 2)
        assert before.growth(await Footprint.at_rest(before)) == []
    told = [record.getMessage() for record in caplog.records if "127.0.0.1 refused" in record.getMessage()]
    assert len(told) == 1
    assert reason in told[0]


async def test_a_gateway_without_tls_hears_nothing_and_gives_up_in_time(settings: ConnectionSettings) -> None:
    plain = replace(settings, tls=None)
    async with worker_in_use(settings) as worker, WorkerPool(pool_settings(connection=plain)) as pool:
        pool.update({"w1": worker.address})
        await until(lambda: pool.statistics()[0].last_error != "")
        assert pool.fleet().replicas == {}


async def test_a_gateway_with_tls_and_a_worker_without_say_so_both(
    settings: ConnectionSettings, caplog: pytest.LogCaptureFixture
) -> None:
    plain = replace(settings, tls=None)
    async with worker_in_use(plain) as worker, WorkerPool(pool_settings(connection=settings)) as pool:
        pool.update({"w1": worker.address})
        await until(lambda: worker.server.refusals.count >= 2)
        assert pool.statistics()[0].last_error == "the peer does not speak TLS, which security.tls asks for"
    refused = "127.0.0.1 refused: the peer speaks TLS, and security.tls is not set here"
    assert caplog.messages.count(refused) == 1
    assert sum("does not speak TLS" in said for said in caplog.messages) == 1


async def test_a_wrong_secret_is_refused_under_tls_too(settings: ConnectionSettings) -> None:
    async with worker_in_use(settings) as worker, WorkerPool(pool_settings(b"guessed", connection=settings)) as pool:
        pool.update({"w1": worker.address})
        await until(lambda: worker.server.refusals.count >= 1)
        await until(lambda: pool.statistics()[0].last_error == "refuses this gateway: wrong cluster secret")


async def test_a_gateway_does_not_believe_a_worker_of_another_authority(
    settings: ConnectionSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = replace(settings, tls=Identity(Authority(tmp_path / "b").issue()))
    async with running_worker(connection=theirs) as worker, WorkerPool(pool_settings(connection=settings)) as pool:
        pool.update({"w1": worker.address})
        await until(lambda: "the peer's certificate is refused" in pool.statistics()[0].last_error)
        await until(lambda: worker.server.refusals.count >= 1)
        assert pool.fleet().replicas == {}


async def test_new_connections_use_certificates_that_were_replaced(
    authority: Authority, settings: ConnectionSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker_in_use(settings):
        assert settings.tls is not None
        until_then = settings.tls.expires_at
        with caplog.at_level(logging.INFO):
            authority.issue(days=60)
            async with worker_in_use(settings):
                assert settings.tls.expires_at > until_then
        assert "the files of security.tls have changed: new connections use them" in caplog.messages


def test_uvloop_speaks_it_as_well(settings: ConnectionSettings, authority: Authority) -> None:
    """Replicas run on it."""

    async def scenario() -> None:
        async with worker_in_use(settings) as worker:
            await knock(worker, with_files(authority.issue("old", days=-1)))
            await knock(worker, None, b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: worker.server.refusals.count == 2)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
