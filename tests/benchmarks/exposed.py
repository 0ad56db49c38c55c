"""How much of moving a prompt's KV blocks to another node is left when prefill ends.

Two nodes, each a process with its own store: a simulated engine computes an 8k-token prompt on one, chunk by chunk, and
the other waits for the blocks. The kernel paces the lanes like a slower network, and the KV bytes of a token are
chosen so that the whole transfer takes 60 % of the prefill. Beside it the same with a transfer that begins only when
prefill has ended. Clocks of both processes are the machine's monotonic one.
"""

import argparse
import asyncio
import contextlib
import os
import random
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import psutil

from cluster.engines.engine import EngineRequest
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from kvtransfer.protocol import AwaitHandoff
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.waits import HandoffWaits
from tests.benchmarks import machine
from tests.benchmarks.spread import spread
from tests.benchmarks.store_cases import Peer
from tests.unit.engines.simulated.bench import write_model

SO_MAX_PACING_RATE = 47
SHARE = 0.6  # of the prefill that the whole transfer takes
LANES = 2
SECRET = b"a secret"
DEADLINE_S = 60.0
ALLOWED_MS = 5.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node's store."""

    server: StoreServer
    transport: TcpTransport


@dataclass(frozen=True, slots=True)
class Scene:
    """One prompt and the network it meets."""

    prompt_tokens: int = 8192
    chunk_tokens: int = 1024
    block_tokens: int = 16
    prefill_tokens_per_s: float = 8000.0
    link_bytes_per_s: int = 100_000_000

    @property
    def prefill_s(self) -> float:
        return self.prompt_tokens / self.prefill_tokens_per_s

    @property
    def token_bytes(self) -> int:
        """Of KV, in whole cache lines."""
        return int(SHARE * self.prefill_s * self.link_bytes_per_s / self.prompt_tokens) // 64 * 64

    @property
    def slot_bytes(self) -> int:
        return self.block_tokens * self.token_bytes

    def engine(self, model: Path, store: StoreAccess | None) -> SimulatedSettings:
        """What computes it."""
        return SimulatedSettings(
            model_path=model,
            model_digest="exposed",
            max_model_len=2 * self.prompt_tokens,
            block_size=self.block_tokens,
            device_blocks=2 * self.prompt_tokens // self.block_tokens,
            kv_bytes_per_token=self.token_bytes,
            max_batched_tokens=self.chunk_tokens,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            store=store,
        )

    def store(self, role: str) -> Node:
        """With room for three prompts."""
        settings = StoreSettings(3 * self.prompt_tokens * self.token_bytes, f"baton-bench-{role}-{os.getpid()}")
        fingerprint = kv_fingerprint(self.engine(Path(), None)).digest()
        transport = TcpTransport(SECRET, fingerprint, "127.0.0.1", LANES)
        return Node(StoreServer(settings, SECRET, fingerprint, transport), transport)

    def prompt(self, number: int) -> list[int]:
        """A new one each time."""
        chosen = random.Random(number)
        return [chosen.randrange(300, 450) for _ in range(self.prompt_tokens)]


def prefill_node(pipe: Connection, scene: Scene) -> None:
    """The source: a store and an engine."""
    asyncio.run(_prefill_node(pipe, scene))


async def _prefill_node(pipe: Connection, scene: Scene) -> None:
    node = scene.store("prefill")
    await node.server.start()
    with tempfile.TemporaryDirectory(prefix="bench-exposed-") as folder:
        access = StoreAccess(node.server.socket_name, SECRET)
        engine = await SimulatedEngine.create(scene.engine(write_model(Path(folder)), access))
        pipe.send(node.server.address)
        while (told := await asyncio.to_thread(pipe.recv)) is not None:
            handoff_id, number = told
            pace(scene.link_bytes_per_s // LANES)
            pipe.send(await prefill(engine, handoff_id, scene.prompt(number)))
        await engine.close()
    await node.server.close()


async def prefill(engine: SimulatedEngine, handoff_id: str, prompt: Sequence[int]) -> tuple[float, float]:
    """When it began and when it ended."""
    began = time.monotonic()
    sampling = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": 1, "ignore_eos": True})
    async for _ in engine.generate(EngineRequest(handoff_id, prompt, sampling, handoff_id=handoff_id)):
        pass
    return began, time.monotonic()


def pace(bytes_per_s: int) -> None:
    """Every TCP connection of this process sends no faster."""
    for connection in psutil.Process().net_connections("tcp"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_s)


@dataclass(frozen=True, slots=True)
class Measured:
    """One prompt. `exposed_ms` is from the end of prefill to the end of the wait, upon which decode begins."""

    prefill_ms: float
    exposed_ms: float


class Bench:
    """The destination, and what is measured there."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._numbers = 0

    async def run(self, rounds: int) -> dict[str, list[Measured]]:
        """Both ways in turn; the first round warms up, and opens the connections."""
        peer = Peer(prefill_node, self._scene)
        node = self._scene.store("decode")
        await node.server.start()
        node.server.store.attach(self._scene.slot_bytes)
        try:
            address = await asyncio.to_thread(peer.hear)
            found: dict[str, list[Measured]] = {"as committed": [], "after prefill": []}
            for number in range(rounds + 1):
                for way, measured in found.items():
                    one = await self._one(node, peer, address, way == "as committed")
                    if number:
                        measured.append(one)
            return found
        finally:
            await asyncio.to_thread(peer.stop)
            await node.server.close()

    async def _one(self, node: Node, peer: Peer, address: str, at_once: bool) -> Measured:
        self._numbers += 1
        handoff_id = f"h{self._numbers}"
        prefill = asyncio.create_task(asyncio.to_thread(peer.ask, (handoff_id, self._numbers)))
        if not at_once:
            await prefill
        here_at = await self._wait(node, handoff_id, address)
        began, ended = await prefill
        return Measured(1e3 * (ended - began), 1e3 * (here_at - ended))

    async def _wait(self, node: Node, handoff_id: str, address: str) -> float:
        """When all blocks were here."""
        store = node.server.store
        owner = store.open_owner()
        waits = HandoffWaits(store, node.transport)
        ended = await waits.run(owner, AwaitHandoff(1, handoff_id, address, DEADLINE_S))
        at = time.monotonic()
        if ended.outcome != "ready":
            raise RuntimeError(f"{ended}")
        store.release_owner(owner)
        return at


def as_text(scene: Scene, found: dict[str, list[Measured]]) -> str:
    """Both ways, and what the goal allows."""
    late = spread([m.exposed_ms for m in found["after prefill"]])
    lines = [
        f"{scene.prompt_tokens:,} tokens in chunks of {scene.chunk_tokens:,}, {scene.token_bytes:,} KV bytes a token "
        f"over {scene.link_bytes_per_s / 1e6:,.0f} MB/s: {SHARE:.0%} of {1e3 * scene.prefill_s:,.0f} ms of prefill"
    ]
    for way, measured in found.items():
        exposed, prefill_ms = spread([m.exposed_ms for m in measured]), spread([m.prefill_ms for m in measured])
        lines.append(f"  transfer {way}: {exposed} ms exposed after {prefill_ms} ms of prefill, n {len(measured)}")
    chunk_ms = late.median * scene.chunk_tokens / scene.prompt_tokens
    lines.append(f"  allowed: {chunk_ms + ALLOWED_MS:.1f} ms, the last chunk's {chunk_ms:.1f} ms and {ALLOWED_MS:g} ms")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a smoke run: two rounds")
    options = parser.parse_args()
    scene = Scene()
    found = asyncio.run(Bench(scene).run(2 if options.quick else options.rounds))
    print(machine.describe())
    print(as_text(scene, found))


if __name__ == "__main__":
    main()
