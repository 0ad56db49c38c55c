"""NIXL's side of the store benchmark, from its wheel: UCX between two processes, progress thread off, the faster way.

`UCX_TLS` decides what UCX uses. Of READ and WRITE the faster one counts. Descriptors are prepared beforehand, as vLLM
does. Runs in `.peers/transfer`.
"""

import asyncio
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

from tests.benchmarks.router_serve import serve
from tests.benchmarks.store_cases import CASES, Bytes, Case, Peer, Places, check, fastest, memory

Agent = Any

SPIN = "spin"
"""Told before a move: until it is told something else. It may not take a core while other sides are measured."""


def agent(name: str) -> Agent:
    made = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=[]))
    made.create_backend("UCX", {})
    return made


def register(made: Agent, array: Bytes) -> None:
    made.register_memory([(array.ctypes.data, array.nbytes, 0, "")], "DRAM")


def partner(pipe: Connection, case: Case) -> None:
    """The other process: it holds both a source and a target for the moves of the first one."""
    source, target = memory(case, filled=True), memory(case, filled=False)
    mine = agent("partner")
    register(mine, source)
    register(mine, target)
    pipe.send((mine.get_agent_metadata(), source.ctypes.data, target.ctypes.data))
    mine.add_remote_agent(pipe.recv())
    pipe.send("ready")
    while (told := pipe.recv()) is not None:
        if told == SPIN:
            pipe.send("spinning")
            while not pipe.poll():
                mine.get_new_notifs()  # without a progress thread somebody has to drive it
        else:
            check(case, target, *told)
            pipe.send("checked")


class Nixl:
    """The orders."""

    def prepare(self, case: str) -> None:
        """Start the other process, and make both known to each other."""
        self.case = CASES[case]
        self.peer = Peer(partner, self.case)
        self.source, self.target = memory(self.case, filled=True), memory(self.case, filled=False)
        self.agent = agent("first")
        register(self.agent, self.source)
        register(self.agent, self.target)
        metadata, their_source, their_target = self.peer.hear()
        self.peer.ask(self.agent.get_agent_metadata())
        name = self.agent.add_remote_agent(metadata)
        self.agent.make_connection(name)
        self.lists = {
            "WRITE": (self._list("", self.source.ctypes.data), self._list(name, their_target)),
            "READ": (self._list("", self.target.ctypes.data), self._list(name, their_source)),
        }

        sources, targets = self.case.plan(0)
        self.peer.ask(SPIN)
        self.way = fastest(list(self.lists), lambda way: self._move(way, sources, targets))
        self.peer.ask((sources[:0], targets[:0]))

    def move(self, number: int) -> float:
        """Bytes a second, the faster way."""
        sources, targets = self.case.plan(number)
        self.peer.ask(SPIN)
        elapsed_s = self._move(self.way, sources, targets)
        written = self.way == "WRITE"
        self.peer.ask((sources, targets) if written else (sources[:0], targets[:0]))
        if not written:
            check(self.case, self.target, sources, targets)
        return self.case.moved_bytes / elapsed_s

    def one(self, count: int) -> float:
        """Microseconds to move one block, the faster way."""
        place = np.zeros(1, np.int64)
        self.peer.ask(SPIN)
        medians = [sorted(self._move(way, place, place) for _ in range(count))[count // 2] for way in self.lists]
        self.peer.ask((place[:0], place[:0]))
        return 1e6 * min(medians)

    def finish(self) -> None:
        """This case is over."""
        self.peer.stop()

    def _list(self, name: str, base: int) -> Any:
        places = np.zeros((self.case.pool, 3), np.uint64)
        places[:, 0] = np.uint64(base) + np.arange(self.case.pool, dtype=np.uint64) * np.uint64(self.case.block_bytes)
        places[:, 1] = self.case.block_bytes
        return self.agent.prep_xfer_dlist(name, places, "DRAM")

    def _move(self, way: str, sources: Places, targets: Places) -> float:
        local, remote = self.lists[way]
        mine, theirs = (sources, targets) if way == "WRITE" else (targets, sources)
        began = time.perf_counter()
        handle = self.agent.make_prepped_xfer(way, local, mine.astype(np.int32), remote, theirs.astype(np.int32), b"")
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        elapsed_s = time.perf_counter() - began
        self.agent.release_xfer_handle(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL says {state}")
        return elapsed_s


if __name__ == "__main__":
    side = Nixl()
    asyncio.run(serve({"prepare": side.prepare, "move": side.move, "one": side.one, "finish": side.finish}))
