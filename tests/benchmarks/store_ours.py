"""Our side of the store benchmark: two stores, each with its server and loop in a process of its own, and our TCP.

A move is what a decode worker waits for: from the wait for a complete hand-off to its end, all blocks pinned. Pins,
reservations, commits and their books are in it; verification is not, which is done as a block is loaded.
"""

import asyncio
import os
import time
from multiprocessing.connection import Connection

import uvloop

from kvtransfer.checksum import block_checksum
from kvtransfer.protocol import AwaitHandoff
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.waits import HandoffWaits
from tests.benchmarks.router_serve import serve
from tests.benchmarks.store_cases import CASES, Case, Peer

MOVE_DEADLINE_S = 60.0


def key(place: int) -> bytes:
    return place.to_bytes(32, "little")


class Node:
    """A store with its transport."""

    def __init__(self, case: Case, role: str) -> None:
        settings = StoreSettings(case.block_bytes * case.pool, f"baton-bench-{role}-{os.getpid()}")
        self.case = case
        self.transport = TcpTransport(b"secret", "fp", "127.0.0.1")
        self.server = StoreServer(settings, b"secret", "fp", self.transport)
        self.store = self.server.store
        self.owner = self.store.open_owner()

    async def start(self) -> None:
        await self.server.start()
        arena = self.store.attach(self.case.block_bytes)
        await asyncio.to_thread(arena.populate, 0, arena.slots * arena.slot_bytes)
        arena.array[:] = 1

    def fill(self) -> None:
        """Commit every block of the pool."""
        arena = self.store.arena
        assert arena is not None
        keys = [key(place) for place in range(self.case.pool)]
        for place, slot in enumerate(self.store.reserve(self.owner, keys).slots):
            assert slot is not None
            arena.array[slot] = self.case.content(place)
            self.store.commit(self.owner, [keys[place]], [block_checksum(arena.slot(slot))])


def source(pipe: Connection, case: Case) -> None:
    """The other process."""
    uvloop.run(_source(pipe, case))


async def _source(pipe: Connection, case: Case) -> None:
    node = Node(case, "source")
    await node.start()
    node.fill()
    pipe.send(node.transport.address)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), _told, pipe, node, over)
    await over.wait()
    await node.server.close()


def _told(pipe: Connection, node: Node, over: asyncio.Event) -> None:
    """In the loop: a thread that waits for the pipe would be busy just when the pull comes."""
    handoffs = pipe.recv()
    if handoffs is None:
        over.set()
        return
    for handoff_id, places in handoffs.items():
        node.store.announce(node.owner, handoff_id, [key(place) for place in places])
    pipe.send("announced")


class Ours:
    """The orders."""

    async def prepare(self, case: str) -> None:
        """Start both stores."""
        self.case = CASES[case]
        self.peer = Peer(source, self.case)
        self.address = self.peer.hear()
        self.node = Node(self.case, "target")
        await self.node.start()
        self.waits = HandoffWaits(self.node.store, self.node.transport)
        self.moves = 0

    async def move(self, number: int) -> float:
        """Bytes a second."""
        (elapsed_s,) = await self._moves([self.case.plan(number)[0].tolist()])
        return self.case.moved_bytes / elapsed_s

    async def one(self, count: int) -> float:
        """Microseconds to move one block."""
        times = await self._moves([[place % self.case.pool] for place in range(count)])
        return 1e6 * sorted(times)[count // 2]

    async def finish(self) -> None:
        """This case is over."""
        await self.node.server.close()
        self.peer.stop()

    async def _moves(self, moves: list[list[int]]) -> list[float]:
        """Seconds of each, one after the other; they are announced beforehand."""
        handoffs = {f"h{self.moves + number}": places for number, places in enumerate(moves)}
        self.moves += len(moves)
        self.peer.ask(handoffs)
        return [await self._move(handoff_id, places) for handoff_id, places in handoffs.items()]

    async def _move(self, handoff_id: str, places: list[int]) -> float:
        store, owner = self.node.store, self.node.owner
        began = time.perf_counter()
        ended = await self.waits.run(owner, AwaitHandoff(1, handoff_id, self.address, MOVE_DEADLINE_S))
        elapsed_s = time.perf_counter() - began
        if (ended.outcome, ended.pulled_blocks) != ("ready", len(places)):
            raise RuntimeError(f"{ended}")
        self._check(places)
        store.release_handoff(owner, handoff_id)
        store.distrust([key(place) for place in places])  # so that the next move brings them again
        return elapsed_s

    def _check(self, places: list[int]) -> None:
        store, arena = self.node.store, self.node.store.arena
        assert arena is not None
        for place in places[:: max(1, len(places) // 16)]:
            (pinned,) = store.pin(self.node.owner, [key(place)])
            if block_checksum(arena.slot(pinned.slot)) != block_checksum(self.case.content(place)):
                raise RuntimeError(f"block {place} did not arrive")
            store.unpin(self.node.owner, [key(place)])


async def main() -> None:
    side = Ours()
    await serve({"prepare": side.prepare, "move": side.move, "one": side.one, "finish": side.finish})


if __name__ == "__main__":
    uvloop.run(main())
