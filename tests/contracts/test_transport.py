"""One contract for every transport: blocks come from another store, whole, by a deadline, or not at all.

Both ends are real stores; only what carries the bytes differs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kvtransfer.checksum import block_checksum
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.tls import Identity
from kvtransfer.transport import Asked, HandoffState, PullResult, Transport
from kvtransfer.transports.loopback import LoopbackNetwork
from kvtransfer.transports.nixl import open_agent
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.support.authority import Authority

SLOT_BYTES = 4096
KEYS = [bytes([i]) * 32 for i in range(6)]


def content(key: bytes, slot_bytes: int = SLOT_BYTES) -> bytes:
    return (key * (slot_bytes // len(key) + 1))[:slot_bytes]


@dataclass
class Node:
    """A store, its transport, and an owner that plays the prefill engine."""

    transport: Transport
    slots: int = 32
    slot_bytes: int = SLOT_BYTES
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(StoreSettings(self.slots * self.slot_bytes, "unused"))
        self.store.attach(self.slot_bytes)
        self.engine = self.store.open_owner()

    def write(self, *keys: bytes) -> None:
        """Reserve, fill and commit."""
        arena = self.store.arena
        assert arena is not None
        for key, slot in zip(keys, self.store.reserve(self.engine, keys).slots, strict=True):
            if slot is not None:
                arena.slot(slot)[:] = content(key, self.slot_bytes)
                self.store.commit(self.engine, [key], [block_checksum(arena.slot(slot))])

    def read(self, *keys: bytes) -> list[bytes]:
        """The bytes of the readable prefix, checked against their checksums."""
        reader = self.store.open_owner()
        arena = self.store.arena
        assert arena is not None
        blocks = self.store.pin(reader, keys)
        assert all(block_checksum(arena.slot(block.slot)) == block.checksum for block in blocks)
        found = [bytes(arena.slot(block.slot)) for block in blocks]
        self.store.release_owner(reader)
        return found

    async def pull(self, source: "Node", asked: Asked = "h", deadline_s: float = 10.0) -> PullResult:
        sink = PullSink(self.store)
        try:
            return await self.transport.pull(source.transport.address, asked, sink, deadline_s)
        finally:
            sink.close()
            self.store.check()

    @property
    def pins(self) -> int:
        self.store.check()
        return self.store.slot_statistics().pins


def tcp(_: Path) -> Callable[[], Transport]:
    return lambda: TcpTransport(b"secret", "fp", "127.0.0.1")


def tcp_lanes(_: Path) -> Callable[[], Transport]:
    settings = TcpSettings(in_band_bytes=0)
    return lambda: TcpTransport(b"secret", "fp", "127.0.0.1", settings=settings)


def tcp_with_tls(folder: Path) -> Callable[[], Transport]:
    settings = TcpSettings(tls=Identity(Authority(folder).issue()), in_band_bytes=2 * SLOT_BYTES)
    return lambda: TcpTransport(b"secret", "fp", "127.0.0.1", settings=settings)


def nixl(_: Path) -> Callable[[], Transport]:
    pytest.importorskip("nixl", reason="the extra nixl is not installed")
    settings = TcpSettings(in_band_bytes=0)
    return lambda: TcpTransport(b"secret", "fp", "127.0.0.1", settings=settings, nixl=open_agent("nixl"))


def loopback(_: Path) -> Callable[[], Transport]:
    return LoopbackNetwork().open


@pytest.fixture(
    params=[tcp, tcp_lanes, tcp_with_tls, nixl, loopback],
    ids=["tcp", "tcp by lanes alone", "tls", "nixl", "loopback"],
)
async def make_node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[..., Node]]:
    make_transport = request.param(tmp_path)
    nodes: list[Node] = []

    def make(**options: int) -> Node:
        nodes.append(Node(make_transport(), **options))
        return nodes[-1]

    yield make
    for node in nodes:
        await node.transport.close()


@pytest.fixture
async def source(make_node: Callable[..., Node]) -> Node:
    node = make_node()
    await node.transport.serve(node.store)
    return node


@pytest.fixture
def target(make_node: Callable[..., Node]) -> Node:
    return make_node()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  (the condition is other code's state, which announces nothing)
            await asyncio.sleep(0)


async def test_an_address_exists_only_while_serving(source: Node, target: Node) -> None:
    assert source.transport.address.partition("://")[2]
    assert target.transport.address == ""


async def test_blocks_committed_before_the_pull_arrive_whole(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS)
    result = await target.pull(source)
    assert result == PullResult(HandoffState.READY, len(KEYS), len(KEYS) * SLOT_BYTES)
    assert target.read(*KEYS) == [content(key) for key in KEYS]
    await until(lambda: source.pins == 0)


async def test_blocks_arrive_as_they_are_committed(source: Node, target: Node) -> None:
    pull = asyncio.create_task(target.pull(source))
    source.store.announce(source.engine, "h", KEYS)
    for count, key in enumerate(KEYS, start=1):
        source.write(key)
        await until(lambda count=count: len(target.read(*KEYS)) == count)  # type: ignore[misc]
    assert (await pull).state is HandoffState.READY


async def test_only_missing_blocks_travel(source: Node, target: Node) -> None:
    target.write(*KEYS[:4])
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS)
    assert await target.pull(source) == PullResult(HandoffState.READY, 2, 2 * SLOT_BYTES)


async def test_nothing_travels_when_all_is_here(source: Node, target: Node) -> None:
    target.write(*KEYS)
    source.store.announce(source.engine, "h", KEYS)
    assert await target.pull(source) == PullResult(HandoffState.READY, 0, 0)


async def test_an_empty_hand_off_is_ready(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", [])
    assert await target.pull(source) == PullResult(HandoffState.READY, 0, 0)


async def test_a_producer_that_dies_ends_the_pull_with_what_there_is(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS[:3])
    pull = asyncio.create_task(target.pull(source))
    await until(lambda: len(target.read(*KEYS)) == 3)
    source.store.release_owner(source.engine)
    result = await pull
    assert (result.state, result.received_blocks) == (HandoffState.FAILED, 3)
    assert target.read(*KEYS) == [content(key) for key in KEYS[:3]]
    await until(lambda: source.pins == 0)


async def test_a_pull_is_late_when_nothing_is_announced(source: Node, target: Node) -> None:
    result = await target.pull(source, deadline_s=0.05)
    assert (result.state, result.received_blocks) == (HandoffState.LATE, 0)


async def test_a_pull_is_late_when_blocks_do_not_come(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS[:2])
    result = await target.pull(source, deadline_s=1.0)
    assert (result.state, result.received_blocks) == (HandoffState.LATE, 2)
    await until(lambda: source.pins == 0)


async def test_a_cancelled_pull_leaves_nothing_on_either_side(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS[:2])
    pull = asyncio.create_task(target.pull(source))
    await until(lambda: len(target.read(*KEYS)) == 2)
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull
    assert target.pins == 0
    assert target.store.slot_statistics().writing == 0
    await until(lambda: source.pins == 0)


async def test_a_cancelled_pull_disturbs_no_other(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "a", KEYS[:3])
    source.store.announce(source.engine, "b", KEYS[3:])
    pulls = [asyncio.create_task(target.pull(source, name)) for name in ("a", "b")]
    source.write(KEYS[3])
    await until(lambda: len(target.read(*KEYS[3:])) == 1)
    pulls[0].cancel()
    source.write(*KEYS[4:])
    assert (await pulls[1]).state is HandoffState.READY
    with pytest.raises(asyncio.CancelledError):
        await pulls[0]


async def test_many_pulls_at_once_all_arrive(source: Node, make_node: Callable[..., Node]) -> None:
    target = make_node(slots=256)
    keys = {f"h{i}": [bytes([i, j]) * 16 for j in range(4)] for i in range(8)}
    pulls = [asyncio.create_task(target.pull(source, name)) for name in keys]
    for name, blocks in keys.items():
        source.store.announce(source.engine, name, blocks)
    for position in range(4):
        source.write(*(blocks[position] for blocks in keys.values()))
        await asyncio.sleep(0)
    assert [(await pull).state for pull in pulls] == [HandoffState.READY] * len(keys)
    for blocks in keys.values():
        assert target.read(*blocks) == [content(key) for key in blocks]


async def test_what_has_no_room_is_dropped_and_said(source: Node, make_node: Callable[..., Node]) -> None:
    target = make_node(slots=3)
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS)
    result = await target.pull(source)
    assert (result.state, result.received_blocks) == (HandoffState.FAILED, 3)
    assert target.read(*KEYS) == [content(key) for key in KEYS[:3]]


async def test_a_peer_with_other_slots_fails_the_pull(source: Node, make_node: Callable[..., Node]) -> None:
    target = make_node(slot_bytes=1024)
    source.store.announce(source.engine, "h", KEYS)
    source.write(*KEYS)
    result = await target.pull(source)
    assert (result.state, result.received_blocks) == (HandoffState.FAILED, 0)
    assert target.store.slot_statistics().writing == 0


async def test_nobody_at_the_address_fails_the_pull(source: Node, target: Node) -> None:
    address = source.transport.address
    await source.transport.close()
    result = await target.transport.pull(address, "h", PullSink(target.store), 5.0)
    assert result.state is HandoffState.FAILED


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://", "tcp://127.0.0.1:99999", "loopback://nobody"])
async def test_a_bad_address_fails_the_pull(target: Node, address: str) -> None:
    result = await target.transport.pull(address, "h", PullSink(target.store), 5.0)
    assert result.state is HandoffState.FAILED


async def test_a_source_that_closes_fails_the_pull(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", KEYS)
    source.write(KEYS[0])
    pull = asyncio.create_task(target.pull(source))
    await until(lambda: len(target.read(*KEYS)) == 1)
    await source.transport.close()
    assert (await pull).state is HandoffState.FAILED


async def test_closing_the_destination_fails_its_pulls(source: Node, target: Node) -> None:
    source.store.announce(source.engine, "h", KEYS)
    source.write(KEYS[0])
    pull = asyncio.create_task(target.pull(source))
    await until(lambda: len(target.read(*KEYS)) == 1)
    await target.transport.close()
    assert (await pull).state is HandoffState.FAILED
    await until(lambda: source.pins == 0)


# Blocks that nobody hands over, by their labels

LABELS = list(range(100, 100 + len(KEYS)))


def label(node: Node, *positions: int) -> None:
    node.store.label([KEYS[i] for i in positions], [LABELS[i] for i in positions])


async def test_labelled_blocks_arrive_whole(source: Node, target: Node) -> None:
    source.write(*KEYS)
    label(source, *range(len(KEYS)))
    result = await target.pull(source, LABELS)
    assert result == PullResult(HandoffState.READY, len(KEYS), len(KEYS) * SLOT_BYTES)
    assert target.read(*KEYS) == [content(key) for key in KEYS]
    await until(lambda: source.pins == 0)


async def test_labelled_blocks_come_up_to_the_first_that_is_not_there(source: Node, target: Node) -> None:
    source.write(*KEYS)
    label(source, 0, 1, 3, 4)
    assert await target.pull(source, LABELS) == PullResult(HandoffState.READY, 2, 2 * SLOT_BYTES)
    await until(lambda: source.pins == 0)


async def test_labelled_blocks_that_are_here_do_not_travel(source: Node, target: Node) -> None:
    source.write(*KEYS)
    label(source, *range(len(KEYS)))
    target.write(*KEYS[:4])
    assert await target.pull(source, LABELS) == PullResult(HandoffState.READY, 2, 2 * SLOT_BYTES)


async def test_labels_that_nobody_gave_bring_nothing(source: Node, target: Node) -> None:
    source.write(*KEYS)
    assert await target.pull(source, LABELS) == PullResult(HandoffState.READY, 0, 0)
    await until(lambda: source.pins == 0)


async def test_labels_asked_for_twice_are_refused(source: Node, target: Node) -> None:
    source.write(*KEYS)
    label(source, 0)
    result = await target.pull(source, [LABELS[0], LABELS[0]])
    assert (result.state, result.received_blocks) == (HandoffState.FAILED, 0)
    assert source.pins == 0


async def test_a_cancelled_pull_of_labels_leaves_no_pins(source: Node, target: Node) -> None:
    source.write(*KEYS)
    label(source, *range(len(KEYS)))
    pull = asyncio.create_task(target.pull(source, LABELS))
    await until(lambda: len(target.read(*KEYS)) > 0)
    pull.cancel()
    await asyncio.wait([pull])
    assert target.pins == 0
    assert target.store.slot_statistics().writing == 0
    await until(lambda: source.pins == 0)
