"""A bad wire between two stores: the answer is the same, what was lost is counted, nothing is held afterwards."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from cluster.engines.engine import EngineRequest
from cluster.engines.simulated.engine import SimulatedEngine
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.protocol import HandoffEnded
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.contracts.engine_pair import Answer, sampling
from tests.contracts.engine_simulated import SimulatedKind
from tests.support.meddler import Fault, Meddler, untouched
from tests.unit.kvtransfer.conftest import SECRET, fresh_settings, until

PROMPT_TOKENS = 640
STALL_S = 1.0
FIRST_BYTES = 6000
"""More than any control connection carries here, and inside the first lane's blocks."""


@dataclass
class Node:
    """A store, and an engine over it."""

    server: StoreServer
    engine: SimulatedEngine

    @property
    def is_idle(self) -> bool:
        self.server.store.check()
        slots = self.server.store.slot_statistics()
        return slots.pins == 0 and slots.writing == 0


@dataclass
class Pair:
    """Prefill on one node, decode on the other."""

    kind: SimulatedKind
    prefill: Node
    decode: Node

    async def handed_off(self, fault: type[Fault] | None, prompt: list[int]) -> tuple[HandoffEnded, Answer]:
        """How the hand-off over a bad wire ended, and what decode then answered."""
        wire = Meddler(fault or (lambda: untouched))
        source = await wire.start(self.prefill.server.address)
        node = self.decode.server
        client = await AsyncStoreClient.connect(node.socket_name, self.kind.fingerprint(), "worker", SECRET)
        try:
            waiting = asyncio.create_task(client.await_handoff("h", source, 10.0))
            await answered(self.prefill.engine, prompt, sampling(max_tokens=1), handoff_id="h")
            ended = await waiting
            expected = PROMPT_TOKENS // self.kind.block_size
            answer = await answered(self.decode.engine, prompt, expected_blocks=expected)
            await client.release("h")
        finally:
            await client.close()
            await wire.close()
        return ended, answer


async def answered(engine: SimulatedEngine, prompt: list[int], params: bytes = b"", **fields: object) -> Answer:
    request = EngineRequest("r", prompt, params or sampling(), **fields)  # type: ignore[arg-type]
    async with asyncio.timeout(20.0):
        return Answer([delta async for delta in engine.generate(request)])


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    kind = SimulatedKind()
    nodes = []
    for index in range(2):
        wire = TcpSettings(stall_s=STALL_S, in_band_bytes=0)
        transport = TcpTransport(SECRET, kind.fingerprint(), "127.0.0.1", settings=wire)
        settings = StoreSettings(256 * kind.settings(None).block_bytes, fresh_settings().socket_name)
        server = StoreServer(settings, SECRET, kind.fingerprint(), transport)
        await server.start()
        nodes.append(Node(server, await kind.create(server.socket_name, SECRET, index)))
    yield Pair(kind, *nodes)
    await until(lambda: all(node.is_idle for node in nodes))
    for node in nodes:
        await node.engine.close()
        await node.server.close()


class Flip:
    """One bit of the payload is wrong."""

    def __init__(self) -> None:
        self.is_done = False

    def __call__(self, piece: bytes, sent: int) -> list[bytes]:
        at = FIRST_BYTES - sent
        if self.is_done or not 0 <= at < len(piece):
            return [piece]
        self.is_done = True
        return [piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]]


class Cut:
    """The connection ends inside a block."""

    def __call__(self, piece: bytes, sent: int) -> list[bytes] | None:
        return None if sent + len(piece) > FIRST_BYTES else [piece]


class HoldBack:
    """Nothing more comes, and nobody says so: half a cable."""

    def __call__(self, piece: bytes, sent: int) -> list[bytes]:
        return [] if sent + len(piece) > FIRST_BYTES else [piece]


class Swap:
    """Two pieces change places, so that a header lies where payload should be."""

    def __init__(self) -> None:
        self.held: bytes | None = None

    def __call__(self, piece: bytes, sent: int) -> list[bytes]:
        if self.held is None and sent + len(piece) > FIRST_BYTES:
            self.held = piece
            return []
        if self.held:
            held, self.held = self.held, b""
            return [piece, held]
        return [piece]


async def test_a_good_wire_brings_everything(pair: Pair) -> None:
    prompt = list(range(300, 300 + 128)) * 5
    ended, answer = await pair.handed_off(None, prompt)
    assert (ended.outcome, ended.pulled_blocks) == ("ready", PROMPT_TOKENS // pair.kind.block_size)
    assert answer.tokens == (await answered(pair.decode.engine, prompt, cache_salt="alone")).tokens
    assert answer.report.recomputed_blocks == 0


@pytest.mark.parametrize(
    ("fault", "outcomes", "reasons"),
    [
        (Flip, {"ready"}, {"corrupt"}),
        (Cut, {"failed"}, {"evicted", "failed"}),
        (HoldBack, {"failed"}, {"evicted", "failed"}),
        (Swap, {"ready", "failed"}, {"corrupt", "evicted", "failed"}),
    ],
)
async def test_a_bad_wire_changes_no_token(
    pair: Pair, fault: type[Fault], outcomes: set[str], reasons: set[str]
) -> None:
    prompt = list(range(300, 300 + 128)) * 5
    began = asyncio.get_running_loop().time()
    ended, answer = await pair.handed_off(fault, prompt)
    assert ended.outcome in outcomes
    assert asyncio.get_running_loop().time() - began < 5 * STALL_S
    assert answer.tokens == (await answered(pair.decode.engine, prompt, cache_salt="alone")).tokens
    assert answer.report.recomputed_blocks > 0
    assert answer.report.recompute_reason in reasons
