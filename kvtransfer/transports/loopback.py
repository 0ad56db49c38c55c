"""A transport inside one process: the fake behind the `Transport` seam, for tests and single-process set-ups.

It keeps every rule of the seam, deadlines and failures included; only the bytes are copied from slot to slot.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

from kvtransfer.errors import NeverAnnounced, RequestRefused
from kvtransfer.transport import Asked, BlockKey, BlockSink, BlockSource, CommittedBlocks, HandoffState, PullResult


class LoopbackNetwork:
    """The addresses one set of loopback transports can reach."""

    def __init__(self) -> None:
        self._sources: dict[str, LoopbackTransport] = {}
        self._opened = 0

    def open(self) -> "LoopbackTransport":
        """A new transport of this network."""
        self._opened += 1
        return LoopbackTransport(self, f"loopback://{self._opened}")

    def find(self, address: str) -> "LoopbackTransport | None":
        """Who serves at an address."""
        return self._sources.get(address)

    def bind(self, address: str, transport: "LoopbackTransport") -> None:
        """Make a transport reachable."""
        self._sources[address] = transport

    def unbind(self, address: str) -> None:
        """Make it unreachable. Unknown addresses are fine."""
        self._sources.pop(address, None)


class LoopbackTransport:
    """See `kvtransfer.transport.Transport`."""

    def __init__(self, network: LoopbackNetwork, address: str) -> None:
        self._network = network
        self._name = address
        self._address = ""
        self._closed = asyncio.Event()
        self.source: BlockSource | None = None

    @property
    def address(self) -> str:
        return self._address

    async def serve(self, source: BlockSource) -> None:
        self.source = source
        self._address = self._name
        self._network.bind(self._name, self)

    async def pull(self, address: str, asked: Asked, sink: BlockSink, deadline_s: float) -> PullResult:
        peer = self._network.find(address)
        if peer is None or peer.source is None:
            return PullResult(HandoffState.FAILED, 0, 0, f"nobody serves at {address!r}")
        copy = _Copy(peer.source, asked, sink)
        tasks = [
            asyncio.ensure_future(wait) for wait in (copy.run(deadline_s), peer._closed.wait(), self._closed.wait())
        ]
        try:
            await asyncio.wait(tasks, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in tasks[1:]):
                return copy.result(HandoffState.FAILED, "the transport was closed")
            if not tasks[0].done():
                return copy.result(HandoffState.LATE, f"not complete after {deadline_s} s")
            return cast(PullResult, tasks[0].result())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        self._network.unbind(self._name)
        self._closed.set()


class _Copy:
    """One pull's progress."""

    def __init__(self, source: BlockSource, asked: Asked, sink: BlockSink) -> None:
        self._source = source
        self._asked = asked
        self._sink = sink
        self._blocks = 0
        self._bytes = 0

    async def run(self, deadline_s: float) -> PullResult:
        asked = self._asked
        try:
            handoff_id = asked if isinstance(asked, str) else self._source.offer(asked)
            keys = await self._source.announced(handoff_id, deadline_s)
        except TimeoutError:
            return self.result(HandoffState.LATE, "not announced in time")
        except (NeverAnnounced, RequestRefused) as error:
            return self.result(HandoffState.FAILED, str(error))
        try:
            wanted = list(self._sink.missing(keys))
            return self._verdict(wanted, await self._copy_all(handoff_id, wanted))
        finally:
            self._source.leave(handoff_id)

    async def _copy_all(self, handoff_id: str, wanted: Sequence[BlockKey]) -> int:
        """How many of the wanted blocks came."""
        seen = 0
        while seen < len(wanted):
            blocks = await self._source.committed(handoff_id, wanted[seen : seen + 1])
            if not blocks.slots:
                break
            self._take(wanted[seen], blocks)
            self._source.count_pushed(1, "loopback")
            self._source.release(blocks.slots)
            seen += 1
        return seen

    def result(self, state: HandoffState, reason: str = "") -> PullResult:
        return PullResult(state, self._blocks, self._bytes, reason)

    def _verdict(self, wanted: Sequence[BlockKey], seen: int) -> PullResult:
        if seen < len(wanted):
            return self.result(HandoffState.FAILED, "the source ended early")
        if self._blocks < seen:
            return self.result(HandoffState.FAILED, f"no room for {seen - self._blocks} blocks")
        return self.result(HandoffState.READY)

    def _take(self, key: BlockKey, block: CommittedBlocks) -> None:
        slot = self._sink.reserve([key])[0]
        if slot is None:
            return
        assert self._source.arena is not None
        (payload,) = self._source.arena.views(block.slots)
        if len(slot) != len(payload):
            self._sink.abandon([key])
            return
        slot[:] = payload
        self._sink.commit([key], block.checksums, "loopback")
        self._blocks += 1
        self._bytes += len(payload)
