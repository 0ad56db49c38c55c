"""Waiting for a hand-off, on this node or from another one, or for blocks that another node has; and how it ended.

Whatever happens, the wait ends by its deadline, and what is present can be read: it is pinned for the waiting owner.
A cancelled wait keeps nothing.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from kvtransfer.protocol import AwaitHandoff, Fetch
from kvtransfer.pulling import PullSink
from kvtransfer.slot_records import Owner
from kvtransfer.store import Store
from kvtransfer.transport import Asked, HandoffState, PullResult, Transport
from kvtransfer.wait_ended import WaitEnded, wait_ended


class HandoffWaits:
    """Brings blocks into one store."""

    def __init__(self, store: Store, transport: Transport) -> None:
        self._store = store
        self._transport = transport

    async def run(self, owner: Owner, asked: AwaitHandoff) -> WaitEnded:
        """Wait for a hand-off on this node, or on another one, whose address it names."""
        if asked.source is None or asked.source == self._transport.address:
            ended = await self._on_this_node(owner, asked.handoff_id, asked.deadline_s)
        else:
            ended = await self._from_another(owner, asked, asked.handoff_id)
        self._store.counters.failed_handoffs += ended.outcome == "failed"
        self._store.counters.late_handoffs += ended.outcome == "late"
        return ended

    async def fetch(self, owner: Owner, asked: Fetch) -> WaitEnded:
        """The blocks with these labels from another store, as far as it has them."""
        return await self._from_another(owner, asked, asked.labels)

    async def _on_this_node(self, owner: Owner, handoff_id: str, deadline_s: float) -> WaitEnded:
        started, store = time.monotonic(), self._store
        store.join(handoff_id)
        try:
            late = await _is_late(
                store.until(handoff_id, lambda view: view.state is not HandoffState.PENDING), deadline_s
            )
            view = store.find(handoff_id)
            keys = () if view is None else view.keys
            present = store.gather(owner, handoff_id, keys)
            state = HandoffState.LATE if late or view is None else view.state
            result = PullResult(state, 0, 0, view.reason if view else "")
            return wait_ended(result, view is not None, len(keys), len(present), _since(started))
        finally:
            store.leave(handoff_id)

    async def _from_another(self, owner: Owner, request: AwaitHandoff | Fetch, asked: Asked) -> WaitEnded:
        started, sink = time.monotonic(), PullSink(self._store, request.tenant)
        assert request.source is not None
        try:
            result = await self._transport.pull(request.source, asked, sink, request.deadline_s)
            late = result.state is HandoffState.LATE
            if not late and not sink.is_settled:
                late = await _is_late(sink.settle(), max(0.0, request.deadline_s - _since(started)))
            if isinstance(request, Fetch):
                self._store.label(sink.announced, request.labels[: len(sink.announced)])
            present = sink.pass_on(owner, request.handoff_id)
            if late:
                result = PullResult(HandoffState.LATE, result.received_blocks, result.received_bytes, result.reason)
            is_known = bool(sink.announced) or result.state is HandoffState.READY
            return wait_ended(result, is_known, len(sink.announced), present, _since(started))
        finally:
            sink.close()


async def _is_late(wait: Coroutine[Any, Any, object], deadline_s: float) -> bool:
    try:
        async with asyncio.timeout(deadline_s):
            await wait
    except TimeoutError:
        return True
    return False


def _since(started: float) -> float:
    return time.monotonic() - started
