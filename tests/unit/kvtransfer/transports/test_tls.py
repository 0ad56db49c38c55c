"""Stores that pull from each other over TLS, and who is refused at their door."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.tls import Identity
from kvtransfer.tls_socket import TlsSocket
from kvtransfer.transport import HandoffState, PullResult
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.fuzz.footprint import Footprint
from tests.support.authority import Authority
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES
from tests.unit.kvtransfer.transports.tcp_peers import KEYS, fill

DEADLINE_S = 20.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def settings(authority: Authority) -> TcpSettings:
    return TcpSettings(stall_s=DEADLINE_S, in_band_bytes=0, tls=Identity(authority.issue()))


@pytest.fixture
async def source(settings: TcpSettings, store: Store) -> AsyncIterator[TcpTransport]:
    """A store with blocks, from which another pulls before the test and after it over the same session."""
    fill(store, *KEYS)
    transport, other = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=settings), _target(settings)
    await transport.serve(store)
    assert (await _pull(other, transport)).state is HandoffState.READY
    session = other.session(transport.address)
    yield transport
    assert (await _pull(other, transport)).state is HandoffState.READY
    assert other.session(transport.address) is session
    await other.close()
    await transport.close()
    store.check()


def _target(settings: TcpSettings, secret: bytes = SECRET) -> TcpTransport:
    return TcpTransport(secret, FINGERPRINT, "127.0.0.1", settings=settings)


async def _pull(target: TcpTransport, source: TcpTransport) -> PullResult:
    store = Store(StoreSettings(16 * SLOT_BYTES, "unused"))
    store.attach(SLOT_BYTES)
    sink = PullSink(store)
    try:
        return await target.pull(source.address, "h", sink, DEADLINE_S)
    finally:
        sink.close()
        store.check()


async def _refusal(source: TcpTransport, settings: TcpSettings, secret: bytes = SECRET) -> str:
    """Why a pull with these settings failed."""
    target = _target(settings, secret)
    result = await _pull(target, source)
    await target.close()
    assert (result.state, result.received_blocks) == (HandoffState.FAILED, 0)
    return result.reason


async def test_each_pull_and_lane_speaks_tls_1_3(source: TcpTransport, settings: TcpSettings) -> None:
    target = _target(settings)
    assert (await _pull(target, source)).received_blocks == len(KEYS)
    session = target.session(source.address)
    assert session is not None
    socks = [session._control._sock, *(lane._sock for lane in session._lanes)]
    spoken = [sock.version() for sock in socks if isinstance(sock, TlsSocket) and sock.version()]
    assert set(spoken) == {"TLSv1.3"}
    assert len(spoken) >= 2  # the control connection, and a lane that brought something
    await target.close()


async def test_a_wrong_secret_is_refused_under_tls_too(source: TcpTransport, settings: TcpSettings) -> None:
    assert (await _refusal(source, settings, b"guessed")).endswith("wrong cluster secret")


async def test_who_is_of_another_authority_is_refused_by_both_sides(
    source: TcpTransport, settings: TcpSettings, tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = replace(settings, tls=Identity(Authority(tmp_path / "b").issue()))
    for _ in range(2):
        assert "the peer's certificate is refused" in await _refusal(source, theirs)
    await _until_refused(store, 2)
    assert sum("127.0.0.1 refused" in said for said in caplog.messages) == 1


async def test_plaintext_to_a_tls_port_gives_up_in_time(
    source: TcpTransport, settings: TcpSettings, store: Store
) -> None:
    await _refusal(source, replace(settings, tls=None, connect_s=0.3))
    await _until_refused(store, 1)


async def test_tls_to_a_plaintext_port_is_said_on_both_sides(
    settings: TcpSettings, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    source = _target(replace(settings, tls=None))
    await source.serve(store)
    for _ in range(2):
        assert "the peer does not speak TLS, which security.tls asks for" in await _refusal(source, settings)
    await _until_refused(store, 2)
    assert caplog.messages.count("127.0.0.1 refused: the peer speaks TLS, and security.tls is not set here") == 1
    await source.close()


STRANGERS: dict[str, Callable[[Authority, Path], ssl.SSLContext | None]] = {
    "certificate has expired": lambda ours, _: _shows(ours, "old", -1),
    "unable to get local issuer": lambda _, at: _shows(Authority(at / "b"), "node", 1),
    "shows no certificate": lambda *_: _believes_all(),
    "does not speak TLS": lambda *_: None,
}


@pytest.mark.parametrize("reason", STRANGERS)
async def test_strangers_are_refused_and_leave_nothing(
    reason: str,
    source: TcpTransport,
    authority: Authority,
    tmp_path: Path,
    store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = STRANGERS[reason](authority, tmp_path)
    before = Footprint.now()
    for _ in range(2):
        await _knock(source, context)
    await _until_refused(store, 2)
    assert before.growth(await Footprint.at_rest(before)) == []
    assert sum(reason in said for said in caplog.messages) == 1


async def test_new_sessions_use_certificates_that_were_replaced(
    source: TcpTransport, authority: Authority, settings: TcpSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        authority.issue(days=60)
        target = _target(settings)
        assert (await _pull(target, source)).state is HandoffState.READY
    assert caplog.messages.count("the files of security.tls have changed: new connections use them") == 1
    await target.close()


def _believes_all() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _shows(authority: Authority, name: str, days: int) -> ssl.SSLContext:
    context, files = _believes_all(), authority.issue(name, days)
    context.load_cert_chain(files.certificate, files.key)
    return context


async def _knock(source: TcpTransport, context: ssl.SSLContext | None) -> None:
    """Return when shut out."""
    at = urlsplit(source.address)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        reader, writer = await asyncio.open_connection(at.hostname, at.port, ssl=context)
        try:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(DEADLINE_S):
                await reader.read()
        finally:
            writer.close()


async def _until_refused(store: Store, count: int) -> None:
    async with asyncio.timeout(5):
        while store.counters.refused_connections < count:  # noqa: ASYNC110  # a counter announces nothing
            await asyncio.sleep(0)
