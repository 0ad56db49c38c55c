"""NIXL behind the TCP transport's control connection: the destination reads blocks straight from the source's arena.

Reading leaves it to the destination alone when its slots are safe: nobody else writes them. One agent per store, owned
by one thread, since agents are not made for several; that thread also drives UCX for peers that read from us. Optional:
`open_agent` says why when there is none.
"""

import asyncio
import contextlib
import importlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

import numpy as np

from kvtransfer.arena import Arena
from kvtransfer.errors import KvTransferError

logger = logging.getLogger(__name__)

TransportChoice = Literal["auto", "tcp", "nixl"]

RDMA_DEVICES = Path("/sys/class/infiniband")
"""Where the kernel lists them. Without, UCX moves bytes over TCP as well, at a fraction of our own lanes' speed."""

POLL_S = 50e-6
"""Between two looks at a transfer under way: a spinning thread would keep the interpreter from the loop."""

WATCH_S = 200e-6
"""Between two looks for peers that read from us."""

T = TypeVar("T")


class NixlFault(KvTransferError):
    """NIXL could not do it; the bytes can go over TCP instead."""


@dataclass(frozen=True, slots=True)
class ArenaAccess:
    """What a peer needs to read from an arena."""

    version: str
    agent: bytes
    base: int
    slots: int
    slot_bytes: int


@dataclass(slots=True)
class Reading:
    """Blocks to read from a peer's addresses into addresses here. `given_up` ends it early, from any thread."""

    peer: str
    mine: Sequence[int]
    theirs: Sequence[int]
    block_bytes: int
    stall_s: float
    given_up: threading.Event = field(default_factory=threading.Event)


class NixlAgent:
    """From `open_agent` to `close`."""

    def __init__(self, api: Any, version: str) -> None:
        """`api` is the module `nixl._api`."""
        self.version = version
        self._api = api
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._agent: Any = None
        self._registered: dict[int, tuple[Arena, Any]] = {}
        self._watchers = 0
        self._said: set[tuple[str, str]] = set()
        self._thread = threading.Thread(target=self._run, name="kv-nixl", daemon=True)
        self._thread.start()

    async def access(self, arena: Arena) -> ArenaAccess:
        """Let peers read from this arena. Raises `NixlFault`."""
        return await self._do(lambda: self._access(arena))

    async def meet(self, theirs: ArenaAccess, arena: Arena) -> str:
        """Be able to read from a peer's arena into this one: the peer's name. Raises `NixlFault`."""
        if theirs.version != self.version:
            raise NixlFault(f"NIXL {theirs.version} there, {self.version} here")
        if theirs.slot_bytes != arena.slot_bytes:
            raise NixlFault(f"slots of {theirs.slot_bytes} bytes there, {arena.slot_bytes} here")
        return await self._do(lambda: self._meet(theirs, arena))

    async def part(self, peer: str) -> None:
        """Read no more from a peer. What was given up is over then."""
        with contextlib.suppress(NixlFault):
            await self._do(lambda: self._agent.remove_remote_agent(peer))

    async def read(self, reading: Reading) -> None:
        """Return when every block is here. Raises `NixlFault`."""
        await self._do(lambda: self._read(reading))

    @contextlib.contextmanager
    def being_read(self) -> Iterator[None]:
        """While a peer may read: UCX wants to be driven on this side as well."""
        self._watchers += 1
        self._jobs.put((lambda: None, Future()))  # wake the thread
        try:
            yield
        finally:
            self._watchers -= 1

    def say_once(self, peer: str, reason: str) -> None:
        """Why a pair of stores does without NIXL."""
        if (peer, reason) not in self._said:
            self._said.add((peer, reason))
            logger.warning("%s: blocks go over TCP, not NIXL: %s", peer, reason)

    def close(self) -> None:
        """End the thread, and the agent with it."""
        self._jobs.put(None)
        self._thread.join()

    # In the thread

    async def _do(self, work: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._jobs.put((work, future))
        return await asyncio.shield(asyncio.wrap_future(future))

    def _run(self) -> None:
        while (job := self._next()) is not None:
            work, future = job
            try:
                if self._agent is None:
                    self._agent = self._open()
                future.set_result(work())
            except NixlFault as error:
                future.set_exception(error)
            except Exception as error:  # NIXL's own have no common base; whatever it is, somebody waits
                future.set_exception(NixlFault(f"{type(error).__name__}: {error}"))
        for _, registration in self._registered.values():
            with contextlib.suppress(Exception):
                self._agent.deregister_memory(registration)
        self._agent = None

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        while self._watchers and self._agent is not None:
            try:
                return self._jobs.get(timeout=WATCH_S)
            except Empty:
                self._agent.get_new_notifs()
        return self._jobs.get()

    def _open(self) -> Any:
        agent = self._api.nixl_agent(
            secrets.token_hex(8), self._api.nixl_agent_config(enable_prog_thread=False, backends=[])
        )
        agent.create_backend("UCX", {})
        return agent

    def _register(self, arena: Arena) -> None:
        if id(arena) not in self._registered:
            region = (arena.array.ctypes.data, arena.array.nbytes, 0, "")
            self._registered[id(arena)] = arena, self._agent.register_memory([region], "DRAM")

    def _access(self, arena: Arena) -> ArenaAccess:
        self._register(arena)
        data = self._agent.get_agent_metadata()
        return ArenaAccess(self.version, data, arena.array.ctypes.data, arena.slots, arena.slot_bytes)

    def _meet(self, theirs: ArenaAccess, arena: Arena) -> str:
        self._register(arena)
        name: str | bytes = self._agent.add_remote_agent(theirs.agent)
        return name.decode() if isinstance(name, bytes) else name

    def _read(self, reading: Reading) -> None:
        agent = self._agent
        mine = agent.get_xfer_descs(_regions(reading.mine, reading.block_bytes), "DRAM")
        theirs = agent.get_xfer_descs(_regions(reading.theirs, reading.block_bytes), "DRAM")
        handle = agent.initialize_xfer("READ", mine, theirs, reading.peer, b"")
        give_up_at = time.monotonic() + reading.stall_s
        try:
            state = agent.transfer(handle)
            while state == "PROC":
                if reading.given_up.is_set() or time.monotonic() > give_up_at:
                    raise NixlFault("the pull is over" if reading.given_up.is_set() else "the peer stopped")
                time.sleep(POLL_S)
                state = agent.check_xfer_state(handle)
        except BaseException:
            self._cancel(handle, reading.peer)
            raise
        agent.release_xfer_handle(handle)
        if state != "DONE":
            raise NixlFault(f"a transfer ended as {state}")

    def _cancel(self, handle: Any, peer: str) -> None:
        """Nothing is written into our slots after this: the connection goes with the transfer."""
        with contextlib.suppress(Exception):
            self._agent.release_xfer_handle(handle)
        with contextlib.suppress(Exception):
            self._agent.remove_remote_agent(peer)


def _regions(addresses: Sequence[int], block_bytes: int) -> Any:
    regions = np.zeros((len(addresses), 3), np.uint64)
    regions[:, 0] = addresses
    regions[:, 1] = block_bytes
    return regions


def open_agent(choice: TransportChoice) -> NixlAgent | None:
    """This store's agent, if it is to have one; else the reason is logged, once."""
    reason = _reason_without(choice)
    if reason:
        logger.info("blocks go over TCP: %s", reason)
        return None
    try:
        return NixlAgent(importlib.import_module("nixl._api"), metadata.version("nixl"))
    except ImportError as error:
        logger.warning("blocks go over TCP: NIXL is not installed (pip install 'baton-serve[nixl]'): %s", error)
        return None


def _reason_without(choice: TransportChoice) -> str:
    if choice == "tcp":
        return "store.transport is tcp"
    if choice == "auto" and not (RDMA_DEVICES.is_dir() and any(RDMA_DEVICES.iterdir())):
        return "this node has no RDMA device, and without one NIXL is slower than TCP"
    return ""
