"""Mooncake's side of the store benchmark: its transfer engine over TCP, from its wheel. Runs in `.peers/transfer`."""

import asyncio
import os
import time
from multiprocessing.connection import Connection
from typing import Any

from mooncake.engine import TransferEngine

from tests.benchmarks.router_serve import serve
from tests.benchmarks.store_cases import CASES, Bytes, Case, Peer, check, fastest, memory


def engine(*arrays: Bytes) -> Any:
    made = TransferEngine()
    code = made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    for array in arrays:
        code = code or made.register_memory(array.ctypes.data, array.nbytes)
    if code:
        raise RuntimeError(f"Mooncake says {code}")
    return made


def partner(pipe: Connection, case: Case) -> None:
    """The other process: it holds both a source and a target for the moves of the first one."""
    source, target = memory(case, filled=True), memory(case, filled=False)
    mine = engine(source, target)
    pipe.send((f"127.0.0.1:{mine.get_rpc_port()}", source.ctypes.data, target.ctypes.data))
    while (plan := pipe.recv()) is not None:
        check(case, target, *plan)
        pipe.send("checked")
    os._exit(0)  # its own threads do not end by themselves


class Mooncake:
    """The orders."""

    def prepare(self, case: str) -> None:
        """Start both."""
        self.case = CASES[case]
        self.peer = Peer(partner, self.case)
        self.address, self.their_source, self.their_target = self.peer.hear()
        self.source, self.target = memory(self.case, filled=True), memory(self.case, filled=False)
        self.engine = engine(self.source, self.target)

        sources, targets = self.case.plan(0)
        self.way = fastest((self._write, self._read), lambda way: way(sources.tolist(), targets.tolist()))

    def move(self, number: int) -> float:
        """Bytes a second, the faster way."""
        sources, targets = self.case.plan(number)
        elapsed_s = self.way(sources.tolist(), targets.tolist())
        if self.way == self._write:
            self.peer.ask((sources, targets))
        else:
            check(self.case, self.target, sources, targets)
        return self.case.moved_bytes / elapsed_s

    def one(self, count: int) -> float:
        """Microseconds to move one block, the faster way."""
        medians = [sorted(way([0], [0]) for _ in range(count))[count // 2] for way in (self._write, self._read)]
        return 1e6 * min(medians)

    def finish(self) -> None:
        """This case is over."""
        self.peer.stop()

    def _write(self, sources: list[int], targets: list[int]) -> float:
        mine, theirs = self._at(self.source.ctypes.data, sources), self._at(self.their_target, targets)
        return self._timed(self.engine.batch_transfer_sync_write, mine, theirs)

    def _read(self, sources: list[int], targets: list[int]) -> float:
        mine, theirs = self._at(self.target.ctypes.data, targets), self._at(self.their_source, sources)
        return self._timed(self.engine.batch_transfer_sync_read, mine, theirs)

    def _at(self, base: int, places: list[int]) -> list[int]:
        return [base + place * self.case.block_bytes for place in places]

    def _timed(self, call: Any, mine: list[int], theirs: list[int]) -> float:
        began = time.perf_counter()
        if code := call(self.address, mine, theirs, [self.case.block_bytes] * len(mine)):
            raise RuntimeError(f"Mooncake says {code}")
        return time.perf_counter() - began


async def main() -> None:
    side = Mooncake()
    await serve({"prepare": side.prepare, "move": side.move, "one": side.one, "finish": side.finish})


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
