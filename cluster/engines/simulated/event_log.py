"""Changes of the device's prefix cache on their way to the one consumer of `SimulatedEngine.events`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from cluster.engines.engine import BlocksChanged
from cluster.engines.simulated.sequence import Sequence as EngineSequence


class EventLog:
    """Keeps changes only while somebody consumes them, at most `max_hashes` hashes of them.

    When more wait, they are replaced by one `cleared`: the consumer then knows less than there is, never more.
    """

    def __init__(self, max_hashes: int) -> None:
        self._max_hashes = max_hashes
        self._waiting: list[BlocksChanged] = []
        self._hashes = 0
        self._consumed = False
        self._ready = asyncio.Event()

    def removed(self, hashes: Sequence[bytes]) -> None:
        """These contents were evicted."""
        if hashes:
            self._append(BlocksChanged("removed", tuple(hashes)))

    def cleared(self) -> None:
        """Nothing is cached any more."""
        self._append(BlocksChanged("cleared"))

    def stored(self, sequence: EngineSequence, first: int, end: int) -> None:
        """Blocks `first` to `end` of a sequence are cached from now on."""
        if first < end:
            self._append(_stored(sequence, first, end))

    def consume(self) -> AsyncGenerator[Sequence[BlocksChanged], None]:
        """Batches of changes, from this call on; ends when the consumer closes it."""
        self._consumed = True
        return self._batches()

    async def _batches(self) -> AsyncGenerator[Sequence[BlocksChanged], None]:
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                waiting, self._waiting, self._hashes = self._waiting, [], 0
                yield waiting
        finally:
            self._consumed = False
            self._waiting.clear()

    def _append(self, change: BlocksChanged) -> None:
        if not self._consumed:
            return
        self._hashes += len(change.hashes)
        if self._hashes > self._max_hashes:
            self._waiting, self._hashes = [BlocksChanged("cleared")], 0
        else:
            self._waiting.append(change)
        self._ready.set()


def _stored(sequence: EngineSequence, first: int, end: int) -> BlocksChanged:
    request, size = sequence.job.request, sequence.block_size
    return BlocksChanged(
        "stored",
        hashes=tuple(sequence.hashes[first:end]),
        parent=sequence.hashes[first - 1] if first else None,
        token_ids=sequence.tokens[first * size : end * size].tolist(),
        cache_salt=request.cache_salt,
        lora_name=request.lora_name,
    )
