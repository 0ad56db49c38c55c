"""A leg waiting for its blocks, in the worker: an engine that waits would spin.

The wait for a hand-off ends with it (ready, failed, late), when the prefill leg is lost, when the store is away, or
when time is up; that for blocks of another node's store when they are here, when it has no more, or as the other. Never
with an error: whatever happens, the engine gets the request and computes what is missing.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from cluster.dataplane.frames import Fetch, Handoff
from kvtransfer.errors import KvTransferError
from kvtransfer.protocol import HandoffEnded
from kvtransfer.tenant import Tenant

log = logging.getLogger(__name__)

RELEASE_S = 5.0
"""How long the store may take to drop a hand-off's pins; a closed connection drops them as well."""

REPLY_MARGIN_S = 1.0
"""How much longer than the store's own deadline its answer is waited for."""


class HandoffStore(Protocol):
    """The node's store, as far as a leg needs it."""

    @property
    def address(self) -> str:
        """Where other stores reach this one; empty while it is away."""
        ...

    async def await_handoff(
        self, handoff_id: str, source: str | None, deadline_s: float, tenant: Tenant
    ) -> HandoffEnded:
        """The blocks are the tenant's. Raises `KvTransferError` or `OSError` when the store is away."""
        ...

    async def fetch(
        self, handoff_id: str, labels: Sequence[int], source: str, deadline_s: float, tenant: Tenant
    ) -> HandoffEnded:
        """Bring blocks from another store; they stay pinned until `release`. Raises like `await_handoff`."""
        ...

    async def release(self, handoff_id: str) -> None:
        """Stop waiting for the hand-off and drop its pins; nobody else comes for it. Raises like `await_handoff`."""
        ...

    async def conclude(self, handoff_id: str) -> None:
        """Nothing more comes for the hand-off: one that was not announced fails. Raises like `await_handoff`."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """How a wait ended."""

    outcome: Literal["ready", "failed", "late"]
    held_s: float
    reason: str = ""
    announced_blocks: int = 0
    present_blocks: int = 0
    pulled_blocks: int = 0
    pulled_bytes: int = 0

    @property
    def fetch_outcome(self) -> str:
        """The same for a fetch; "absent" when the source had nothing to give."""
        return "absent" if self.outcome == "ready" and not self.announced_blocks else self.outcome


class Hold:
    """One wait. `source_lost` may come before, during or after it."""

    def __init__(self, handoff: Handoff, tenant: Tenant) -> None:
        self._handoff = handoff
        self._tenant = tenant
        self.handoff_id = handoff.handoff_id
        self._source_lost = False
        self._scope: asyncio.Timeout | None = None

    def source_lost(self) -> None:
        """The prefill leg failed: end the wait now."""
        self._source_lost = True
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def wait(self, store: HandoffStore) -> Held:
        """Returns when the engine may have the request."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._source_lost:
            return Held("failed", 0.0, "the prefill leg failed")
        try:
            async with asyncio.timeout(self._handoff.deadline_s + REPLY_MARGIN_S) as self._scope:
                try:
                    ended = await store.await_handoff(
                        self._handoff.handoff_id, self._source(store), self._handoff.deadline_s, self._tenant
                    )
                finally:
                    self._scope = None
        except TimeoutError:
            return self._gave_up(loop.time() - began)
        except (OSError, KvTransferError) as error:
            log.warning("hand-off %s: the store is away: %s", self._handoff.handoff_id, error)
            return Held("failed", loop.time() - began, "the store is away")
        return _held(ended, loop.time() - began)

    def _source(self, store: HandoffStore) -> str | None:
        source = self._handoff.source
        return None if source in ("", store.address) else source

    def _gave_up(self, held_s: float) -> Held:
        if self._source_lost:
            return Held("failed", held_s, "the prefill leg failed")
        return Held("late", held_s, "the store did not answer in time")


async def bring(fetch: Fetch, labels: Sequence[int], tenant: Tenant, store: HandoffStore) -> Held:
    """Bring a tenant's blocks with these labels from another node. Returns when the engine may have the request."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(fetch.deadline_s + REPLY_MARGIN_S):
            ended = await store.fetch(fetch.fetch_id, labels, fetch.source, fetch.deadline_s, tenant)
    except TimeoutError:
        return Held("late", loop.time() - began, "the store did not answer in time")
    except (OSError, KvTransferError) as error:
        log.warning("fetch %s: the store is away: %s", fetch.fetch_id, error)
        return Held("failed", loop.time() - began, "the store is away")
    return _held(ended, loop.time() - began)


def _held(ended: HandoffEnded, held_s: float) -> Held:
    return Held(
        outcome=ended.outcome,
        held_s=held_s,
        reason=ended.reason,
        announced_blocks=ended.announced_blocks,
        present_blocks=ended.present_blocks,
        pulled_blocks=ended.pulled_blocks,
        pulled_bytes=ended.pulled_bytes,
    )


class Pins:
    """A hand-off's pins in the store, dropped once, in the background: no stream waits for it."""

    def __init__(self, handoff_id: str, store: HandoffStore, tasks: asyncio.TaskGroup) -> None:
        self._handoff_id = handoff_id
        self._store = store
        self._tasks = tasks
        self._released = False

    def release(self) -> None:
        """Let go. A worker that is closing leaves it to the end of its connection to the store."""
        if self._released:
            return
        self._released = True
        work = self._release()
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            work.close()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._store.release(self._handoff_id)
        except (OSError, KvTransferError) as error:
            log.warning("hand-off %s: could not be released: %s", self._handoff_id, error)
