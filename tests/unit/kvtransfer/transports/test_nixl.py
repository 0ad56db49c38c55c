"""When stores use NIXL, and what they do without: blocks come all the same, and the reason is said once."""

import logging
from collections.abc import AsyncIterator, Callable

import pytest

from kvtransfer.counters import Moved
from kvtransfer.pulling import PullSink
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState, Medium
from kvtransfer.transports.nixl import ArenaAccess, NixlAgent, NixlFault, open_agent
from kvtransfer.transports.tcp import TcpTransport
from tests.unit.kvtransfer.conftest import FINGERPRINT, QUICK, SECRET, SLOT_BYTES, fresh_settings, until
from tests.unit.kvtransfer.transports.tcp_peers import KEYS, fill

pytest.importorskip("nixl", reason="the extra nixl is not installed")

MakeTransport = Callable[[NixlAgent | None], TcpTransport]


@pytest.fixture
async def make_transport() -> AsyncIterator[MakeTransport]:
    made: list[TcpTransport] = []

    def make(nixl: NixlAgent | None) -> TcpTransport:
        made.append(TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=QUICK, nixl=nixl))
        return made[-1]

    yield make
    for transport in reversed(made):
        await transport.close()


def make_store() -> Store:
    store = Store(fresh_settings())
    store.attach(SLOT_BYTES)
    return store


async def blocks_by_nixl(source: TcpTransport, target: TcpTransport) -> int:
    """Move a hand-off whole; how many of its blocks NIXL read."""
    theirs, ours = make_store(), make_store()
    await source.serve(theirs)
    fill(theirs, *KEYS)
    sink = PullSink(ours)
    result = await target.pull(source.address, "h", sink, 10.0)
    assert (result.state, result.received_blocks) == (HandoffState.READY, len(KEYS))
    sink.close()
    ours.check()
    session = target.session(source.address)
    assert session is not None
    medium: Medium = "nixl" if session.read_blocks else "tcp"
    moved = Moved(len(KEYS), len(KEYS) * SLOT_BYTES)
    await until(lambda: theirs.counters.traffic == {("pushed", medium): moved})
    assert ours.counters.traffic == {("pulled", medium): Moved(len(KEYS), len(KEYS) * SLOT_BYTES)}
    return session.read_blocks


async def test_two_stores_that_have_it_use_it(make_transport: MakeTransport) -> None:
    assert await blocks_by_nixl(make_transport(open_agent("nixl")), make_transport(open_agent("nixl"))) == len(KEYS)


async def test_a_source_without_it_sends_over_tcp(
    make_transport: MakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = make_transport(None), make_transport(open_agent("nixl"))
    with caplog.at_level(logging.WARNING):
        assert await blocks_by_nixl(source, target) == 0
    assert caplog.messages == [f"{source.address}: blocks go over TCP, not NIXL: the peer has no NIXL"]


async def test_a_destination_without_it_takes_over_tcp(make_transport: MakeTransport) -> None:
    assert await blocks_by_nixl(make_transport(open_agent("nixl")), make_transport(None)) == 0


async def test_another_version_goes_over_tcp(make_transport: MakeTransport, caplog: pytest.LogCaptureFixture) -> None:
    old = open_agent("nixl")
    assert old is not None
    old.version = "0.1"
    with caplog.at_level(logging.WARNING):
        assert await blocks_by_nixl(make_transport(old), make_transport(open_agent("nixl"))) == 0
    assert "NIXL 0.1 there" in caplog.text


async def test_what_nixl_says_of_a_peer_that_is_nonsense_is_a_fault() -> None:
    agent = open_agent("nixl")
    assert agent is not None
    arena = make_store().arena
    assert arena is not None
    with pytest.raises(NixlFault):
        await agent.meet(ArenaAccess(agent.version, b"nonsense", 0, 1, SLOT_BYTES), arena)
    agent.close()


def test_tcp_opens_no_agent() -> None:
    assert open_agent("tcp") is None


def test_auto_opens_no_agent_without_an_rdma_device(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("kvtransfer.transports.nixl.RDMA_DEVICES", tmp_path)
    with caplog.at_level(logging.INFO):
        assert open_agent("auto") is None
    assert "this node has no RDMA device" in caplog.text
