"""A worker's connection to its node's KV store: kept, watched, made again when the store was restarted.

Invariant: what is asked while the store is away fails at once with `StoreLost`; nobody waits for it to come back. Only
what was let go meanwhile is made up for.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Protocol

import msgspec

from cluster.workers.hold import HandoffStore
from kvtransfer.errors import KvTransferError, StoreLost
from kvtransfer.inspection import StoreStatistics
from kvtransfer.net_changes import MAX_TAKEN_KEYS
from kvtransfer.protocol import HandoffEnded, Watched
from kvtransfer.tenant import Tenant

log = logging.getLogger(__name__)

POLL_BUSY_S = 0.1
POLL_IDLE_S = 1.0
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0

MAX_OWED = 4096
"""Hand-offs let go while the store is away that are remembered; one that is forgotten ends with its time."""

NOTHING_HELD = Watched(0, snapshot=True, committed=[], labels=[], gone=[])


class StoreSession(HandoffStore, Protocol):
    """One connection to a store; useless once it raised `StoreLost`."""

    async def until_lost(self) -> None:
        """Return when the connection is dead."""
        ...

    async def statistics(self) -> StoreStatistics:
        """A snapshot."""
        ...

    def watch(self) -> AsyncGenerator[Watched, None]:
        """Which blocks can be read: a snapshot, then changes, until the connection is dead. Raises `StoreLost` then."""
        ...

    async def label(self, labels: Mapping[bytes, int]) -> int:
        """Keep names with blocks."""
        ...

    async def close(self) -> None:
        """Give back everything this connection holds."""
        ...


class StoreLink:
    """`connect` finds (or starts) the node's store and greets it.

    `moved` is told when the store's address changes, `measured` when `latest` does, `watched` which blocks can be read:
    an empty snapshot once the store is lost, for what it held is gone. `block_bytes` is 0 until an engine has decided
    it.
    """

    def __init__(self, connect: Callable[[], Awaitable[StoreSession]]) -> None:
        self._connect = connect
        self._session: StoreSession | None = None
        self.latest: StoreStatistics | None = None
        self.block_bytes = 0
        self.moved: Callable[[str], None] = lambda address: None
        self.measured: Callable[[], None] = lambda: None
        self.watched: Callable[[Watched], None] = lambda watched: None
        self._labels: dict[bytes, int] = {}
        self._labelled = asyncio.Event()
        self._owed: dict[str, None] = {}  # hand-offs let go while the store was away, oldest first

    def __repr__(self) -> str:
        return f"<StoreLink {self.address or 'away'}>"

    @property
    def address(self) -> str:
        """See `HandoffStore`."""
        return self._session.address if self._session is not None else ""

    async def start(self) -> None:
        """Connect for the first time. Raises what `connect` raises."""
        self._session = await self._connect()
        self._measured(await self._session.statistics())

    async def run(self) -> None:
        """Watch and reconnect until cancelled."""
        try:
            while True:
                if self._session is None:
                    await self._reconnect()
                async with asyncio.TaskGroup() as tasks:
                    following = tasks.create_task(self._follow(self._live()), name="store watch")
                    labelling = tasks.create_task(self._send_labels(self._live()), name="store labels")
                    tasks.create_task(self._release_owed(self._live()), name="owed releases")
                    await self._watch(self._live())
                    following.cancel()
                    labelling.cancel()
        finally:
            await self._drop()

    async def _follow(self, session: StoreSession) -> None:
        """Pass on what the store holds. A session that cannot be followed is of no use."""
        try:
            async with aclosing(session.watch()) as watch:
                async for watched in watch:
                    self.watched(watched)
        except (OSError, KvTransferError) as error:
            log.info("the KV store is not followed any more: %s", error)
        finally:
            self.watched(NOTHING_HELD)
            await session.close()

    def label(self, labels: Mapping[bytes, int]) -> None:
        """Let the store keep these names with its blocks, soon. Those of blocks it has not any more are ignored."""
        self._labels.update(labels)
        self._labelled.set()

    async def _send_labels(self, session: StoreSession) -> None:
        try:
            while True:
                await self._labelled.wait()
                self._labelled.clear()
                while self._labels:
                    await session.label(self._take_labels())
        except (OSError, KvTransferError) as error:
            log.info("the KV store gets no more labels: %s", error)

    async def _release_owed(self, session: StoreSession) -> None:
        try:
            for handoff_id in list(self._owed):
                await session.release(handoff_id)
                self._owed.pop(handoff_id, None)
        except (OSError, KvTransferError) as error:
            log.info("what was let go meanwhile is not released yet: %s", error)

    def _take_labels(self) -> Mapping[bytes, int]:
        """No more than go into a frame, however many blocks a store had when its worker came."""
        taken = dict(islice(self._labels.items(), MAX_TAKEN_KEYS))
        for block_hash in taken:
            del self._labels[block_hash]
        return taken

    async def _watch(self, session: StoreSession) -> None:
        """Ask for statistics until the session is of no use any more."""
        try:
            while not await _is_lost_within(session, _pause_s(self.latest)):
                self._measured(await session.statistics())
        except (OSError, KvTransferError) as error:
            log.warning("the KV store does not answer: %s", error)
        log.warning("the KV store is lost")
        await self._drop()

    async def _drop(self) -> None:
        session, self._session = self._session, None
        self._labels.clear()
        self._measured(None)
        if session is not None:
            await session.close()

    def _measured(self, statistics: StoreStatistics | None) -> None:
        before, self.latest = self.latest, statistics
        if statistics is not None:
            self.block_bytes = statistics.slot_bytes or self.block_bytes
        if before is None or statistics is None or _without_id(before) != _without_id(statistics):
            self.measured()

    async def _reconnect(self) -> None:
        """Waits first: a store that greets and then dies must not make this loop spin."""
        retry_s = RETRY_FIRST_S
        while self._session is None:
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, RETRY_MOST_S)
            try:
                self._session = await self._connect()
            except (OSError, KvTransferError) as error:
                log.warning("the KV store is away: %s", error)
        log.info("connected to the KV store at %s", self.address)
        self.moved(self.address)

    # HandoffStore

    async def await_handoff(
        self, handoff_id: str, source: str | None, deadline_s: float, tenant: Tenant
    ) -> HandoffEnded:
        """See `HandoffStore`."""
        return await self._live().await_handoff(handoff_id, source, deadline_s, tenant)

    async def fetch(
        self, handoff_id: str, labels: Sequence[int], source: str, deadline_s: float, tenant: Tenant
    ) -> HandoffEnded:
        """See `HandoffStore`."""
        return await self._live().fetch(handoff_id, labels, source, deadline_s, tenant)

    async def conclude(self, handoff_id: str) -> None:
        """See `HandoffStore`. Without a connection nobody waits at this store."""
        if self._session is not None:
            await self._session.conclude(handoff_id)

    async def release(self, handoff_id: str) -> None:
        """See `HandoffStore`. What cannot be said is said to the next connection: the engine has one of its own, which
        may be back before this one, and hand over what nobody comes for.
        """
        try:
            await self._live().release(handoff_id)
        except StoreLost:
            self._owed[handoff_id] = None
            if len(self._owed) > MAX_OWED:
                del self._owed[next(iter(self._owed))]

    def _live(self) -> StoreSession:
        if self._session is None:
            raise StoreLost("not connected")
        return self._session


def _pause_s(latest: StoreStatistics | None) -> float:
    """Until the next look: soon while something is held, so that nobody sees pins for long that are gone."""
    return POLL_IDLE_S if latest is not None and not (latest.pins or latest.handoffs) else POLL_BUSY_S


def _without_id(statistics: StoreStatistics) -> StoreStatistics:
    return msgspec.structs.replace(statistics, id=0)


async def _is_lost_within(session: StoreSession, delay_s: float) -> bool:
    try:
        async with asyncio.timeout(delay_s):
            await session.until_lost()
    except TimeoutError:
        return False
    return True
