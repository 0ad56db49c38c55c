"""Prefill on one worker, decode on another: the blocks between them.

The decode side pulls each block as soon as it is computed (what prefill had cached, as soon as that leg begins) and its
engine gets the job when all are there. Blocks that its device holds when the hand-off starts are not pulled.
"""

from cluster.planning.job import Job
from cluster.planning.site import Site
from cluster.planning.step import Chunk


class Handoff:
    """The way of one prompt's whole blocks from `prefill` to the node of `destination`."""

    def __init__(self, prefill: Job, decode: Job, destination: Site, latency_s: float) -> None:
        engine = destination.settings.engine
        self.prefill = prefill
        self.decode = decode
        self.destination = destination
        self._latency_s = latency_s
        self._block_bytes = engine.block_size_tokens * engine.kv_bytes_per_token
        self._size = engine.block_size_tokens
        self._usable = (decode.prompt_tokens - 1) // self._size
        self._pulled = min(destination.worker.device.prefix(decode.keys), self._usable)
        self.arrived_at = 0.0

    def progressed(self, chunk: Chunk, began_at: float, now: float) -> None:
        """Prefill computed a chunk in a step from `began_at` to `now`."""
        self._pull(chunk.start // self._size, began_at)
        self._pull(chunk.end // self._size, now)

    def end(self) -> None:
        """Nothing more will come: the decode job finds what was pulled."""
        self.decode.supplied = self._pulled

    def _pull(self, ready: int, available_at: float) -> None:
        blocks = min(ready, self._usable) - self._pulled
        if blocks > 0:
            moved_at = self.destination.ingress.move(blocks * self._block_bytes, available_at)
            self.arrived_at = moved_at + self._latency_s
            self._pulled += blocks
