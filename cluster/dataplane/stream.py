"""The gateway's end of one leg: deltas wait here, merged, until somebody asks for them.

Invariant: at most one delta waits for each output. A stream is open until every output has finished, or it failed,
or it was closed; only an open stream is known to its connection. One that is handed back says so once its reader has
had what was there then.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from cluster.coordinator.workers import HandedBack, Leg
from cluster.dataplane.frames import Delta, Generate
from cluster.dataplane.token_ids import pack_token_ids
from cluster.errors import BatonError, ReplicaLost


class WorkerStream:
    """Implements `cluster.coordinator.workers.Stream`. One consumer."""

    __slots__ = (
        "_abort",
        "_announce_source_lost",
        "_error",
        "_had_all",
        "_handed_back",
        "_unfinished",
        "_waiting",
        "_wakeup",
        "open",
    )

    def __init__(self, outputs: int, abort: Callable[[], None], announce_source_lost: Callable[[], None]) -> None:
        self._unfinished = outputs
        self._abort = abort
        self._announce_source_lost = announce_source_lost
        self._waiting: dict[int, Delta] = {}
        self._error: BatonError | None = None
        self._handed_back = self._had_all = False
        self._wakeup: asyncio.Future[None] | None = None
        self.open = True

    def __repr__(self) -> str:
        state = "open" if self.open else f"ended {self._error or ''}".strip()
        return f"<WorkerStream {state} waiting={len(self._waiting)} unfinished={self._unfinished}>"

    async def next(self) -> Sequence[Delta]:
        """See the seam. After the last delta, an ended stream raises `ReplicaLost`."""
        while self._must_tell() or not self._waiting:
            self._raise_what_happened()
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await self._wakeup
            finally:
                self._wakeup = None
        waiting, self._waiting = self._waiting, {}
        self._had_all = True
        return list(waiting.values())

    def _must_tell(self) -> bool:
        """Whether it was handed back, and the reader has had what was there then."""
        return self._handed_back and self.open and (self._had_all or not self._waiting)

    def _raise_what_happened(self) -> None:
        if self._must_tell():
            self._handed_back = False
            raise HandedBack
        if self._error is not None:
            raise self._error
        if not self.open:
            raise ReplicaLost("the stream has ended")

    def source_lost(self) -> None:
        """See the seam."""
        if self.open:
            self._announce_source_lost()

    def close(self) -> None:
        """See the seam."""
        if self.open:
            self._abort()
            self.fail(ReplicaLost("the stream was closed"))

    # For the link only

    def deliver(self, delta: Delta) -> None:
        """New tokens from the worker; the stream owns `delta`."""
        waiting = self._waiting.get(delta.index)
        if waiting is None:
            self._waiting[delta.index] = delta
        else:
            waiting.absorb(delta)
        if delta.finish_reason is not None:
            self._unfinished -= 1
            if self._unfinished == 0:
                self.open = False
        self._wake()

    def hand_back(self) -> None:
        """The worker wants to be rid of it."""
        self._handed_back, self._had_all = True, False
        self._wake()

    def fail(self, error: BatonError) -> None:
        """Nothing more will come; what waits is delivered first."""
        self.open = False
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


def opening(number: int, leg: Leg) -> Generate:
    """The frame that opens a stream for a leg. Raises `InvalidRequest` for token ids the wire cannot carry."""
    request = leg.request
    return Generate(
        stream=number,
        request_id=request.request_id,
        role=leg.role,
        token_ids=pack_token_ids(request.token_ids),
        sampling=msgspec.Raw(leg.sampling),
        handoff=leg.handoff,
        fetch=leg.fetch,
        load_limit_tokens=leg.load_limit_tokens,
        cache_salt=request.cache_salt,
        lora_name=request.lora_name,
        priority=request.priority,
        deadline_s=leg.deadline_s,
        trace_headers=request.trace_headers,
        emitted=list(leg.emitted),
    )
