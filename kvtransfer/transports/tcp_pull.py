"""The destination's side of a pair of stores: many pulls, one control connection, and lanes that fill arena slots.

A slot belongs to a lane while a block arrives in it. A pull that ends meanwhile waits for that block, or, when it does
not come, breaks the session: only then may the slot be used for something else.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from kvtransfer.errors import FramingError, KvTransferError, StoreLost
from kvtransfer.tasks import TaskSet, outlast
from kvtransfer.transport import Asked, BlockSink, HandoffState, Medium, PullResult
from kvtransfer.transports.frame_socket import FrameSocket
from kvtransfer.transports.landing import LandingField
from kvtransfer.transports.nixl import ArenaAccess, NixlAgent
from kvtransfer.transports.nixl_reader import NixlReader
from kvtransfer.transports.open_pull import OpenPull
from kvtransfer.transports.tcp_dial import Dial
from kvtransfer.transports.tcp_frames import (
    Alive,
    Announced,
    Cancel,
    Ended,
    FromDestination,
    FromSource,
    Join,
    Memory,
    Open,
    Pull,
    Ready,
    Session,
    Take,
    Want,
    encode,
    from_source,
)
from kvtransfer.transports.tcp_landing import LandingLane
from kvtransfer.transports.tcp_settings import TcpSettings


class PullSession:
    """One peer. `run` until the session breaks; `pull` any number of times meanwhile."""

    def __init__(
        self, address: str, dial: Dial, streams: int, settings: TcpSettings, nixl: NixlAgent | None = None
    ) -> None:
        self._address = address
        self._dial = dial
        self._streams = streams
        self._settings = settings
        self._pulls: dict[int, OpenPull] = {}
        self._numbers = 0
        self._begun = asyncio.Event()  # greeted, or over before that
        self._fault: Exception = StoreLost("the transport was closed")
        self._control: FrameSocket | None = None
        self._field = LandingField()
        self._lanes: list[LandingLane] = []
        self._tasks = TaskSet()
        self._reader = NixlReader(nixl, address, settings.stall_s) if nixl is not None else None
        self.is_over = False

    @property
    def landing(self) -> int:
        """How many lanes write into slots right now."""
        return self._field.landing

    @property
    def fault(self) -> Exception:
        """Why it is over, when it is."""
        return self._fault

    @property
    def read_blocks(self) -> int:
        """How many blocks came by NIXL."""
        return 0 if self._reader is None else self._reader.read_blocks

    async def run(self) -> None:
        """Connect, greet and read. Never raises for the peer's faults: its pulls end as FAILED."""
        try:
            async with asyncio.timeout(self._settings.connect_s):
                control = await self._dial.connect()
                self._control = control
                await control.send(encode(Open()))
            self._begun.set()
            self._tasks.spawn(self._beat(control))
            await control.deliver(self._received_all)
            self._blame(StoreLost("the peer closed the connection"))
        except (OSError, KvTransferError) as error:
            self._blame(error)
        finally:
            self.abort()
            self._begun.set()
            await self._end()

    async def pull(self, asked: Asked, sink: BlockSink, deadline_s: float) -> PullResult:
        """See `Transport.pull`."""
        pull = OpenPull(asked, sink)
        self._numbers += 1
        number = self._numbers
        self._pulls[number] = pull
        try:
            async with asyncio.timeout(deadline_s):
                await self._begun.wait()
                self._send(Pull(number, asked, deadline_s))
                await pull.ended
        except TimeoutError:
            pull.finish(pull.progress.result(HandoffState.LATE, f"not complete after {deadline_s} s"))
        except (OSError, StoreLost) as error:
            pull.finish(pull.progress.result(HandoffState.FAILED, str(error)))
        finally:
            result = pull.finish(pull.progress.result(HandoffState.FAILED, "cancelled"))
            assert result is not None
            try:
                await self._quiesce(number, pull)
            finally:
                del self._pulls[number]
                pull.progress.abandon()
        return result

    def abort(self) -> None:
        """Break the session now: its lanes leave the slots they write, and its pulls fail."""
        self.is_over = True
        if self._control is not None:
            self._control.shut()
        for lane in self._lanes:
            lane.shut()

    def _received_all(self, bodies: Sequence[bytes]) -> None:
        """What came together is answered together, but an offer is not kept waiting for the one behind it."""
        answers: list[FromDestination] = []
        for body in bodies:
            message = from_source.decode(body)
            if isinstance(message, Ready) and answers and isinstance(answers[-1], Take):
                self._send(*answers)
                answers.clear()
            answers += self._received(message)
        if answers:
            self._send(*answers)

    def _received(self, message: FromSource) -> Sequence[FromDestination]:
        """What to answer."""
        if isinstance(message, Session):
            self._open_lanes(Join(message.session))
        elif isinstance(message, Memory):
            self._shown(message)
        elif not isinstance(message, Alive):
            pull = self._pulls.get(message.pull)
            if pull is not None and pull.result is None:
                return self._received_for(pull, message)
            if isinstance(message, Ready) and not message.content:
                return [Take(message.pull, [])]
        return ()

    def _received_for(self, pull: OpenPull, message: Announced | Ready | Ended) -> Sequence[FromDestination]:
        if isinstance(message, Ready):
            return self._take(pull, message)
        answers: list[FromDestination] = []
        if isinstance(message, Announced):
            answers.append(Want(message.pull, pull.progress.announced(message.keys)))
        else:
            pull.progress.ended(message)
        pull.finish(pull.progress.verdict())
        return answers

    def _take(self, pull: OpenPull, ready: Ready) -> Sequence[FromDestination]:
        slots = pull.progress.ready(ready.positions, ready.checksums)
        if ready.content:
            pull.progress.brought(ready.positions, ready.content, slots)
            pull.finish(pull.progress.verdict())
            return ()
        if self._reader is None:
            return [self._take_by_lane(ready.pull, slots)]
        pull.readings.append(self._tasks.spawn(self._read_in(self._reader, pull, ready, slots)))
        return ()

    def _take_by_lane(self, number: int, slots: Mapping[int, memoryview]) -> Take:
        self._field.expect(number, slots)
        return Take(number, list(slots))

    async def _read_in(self, reader: NixlReader, pull: OpenPull, ready: Ready, slots: Mapping[int, memoryview]) -> None:
        """By NIXL, or else by a lane. The answers keep the order of the offers, since the reader takes turns."""
        theirs = dict(zip(ready.positions, ready.slots, strict=False))
        with contextlib.suppress(OSError, StoreLost):  # the pull fails with its session
            if not await reader.read(pull.progress.arena, slots, theirs):
                self._send(self._take_by_lane(ready.pull, slots))
                return
            self._send(Take(ready.pull, [], len(slots)))
            self._landed(ready.pull, list(slots), sum(map(len, slots.values())), "nixl")

    def _shown(self, memory: Memory) -> None:
        if self._reader is not None:
            self._reader.shown(ArenaAccess(*msgspec.structs.astuple(memory)))

    def _open_lanes(self, join: Join) -> None:
        if self._lanes:
            raise FramingError("a second session on one connection")
        for _ in range(self._streams):
            lane = LandingLane(self._dial.open(), self._field, self._settings, self._landed)
            lane.start(self._dial, join)
            lane.over.add_done_callback(partial(self._lane_is_over, lane))
            self._lanes.append(lane)

    def _lane_is_over(self, lane: LandingLane, _: "asyncio.Future[None]") -> None:
        self._blame(lane.fault)
        self.abort()

    def _landed(self, number: int, positions: Sequence[int], payload_bytes: int, via: Medium = "tcp") -> None:
        pull = self._pulls.get(number)
        if pull is None:
            return
        if pull.result is None:
            if positions:
                pull.progress.landed(positions, payload_bytes, via)
            pull.finish(pull.progress.verdict())
        elif not self._field.withdraw(number) and not pull.quiet.done():
            pull.quiet.set_result(None)

    async def _quiesce(self, number: int, pull: OpenPull) -> None:
        """Leave the pull so that nothing writes for it any more."""
        if pull.result is None or pull.result.state is not HandoffState.READY:
            with contextlib.suppress(OSError, StoreLost):  # a broken session cancels all the same
                self._send(Cancel(number))
        for reading in pull.readings:
            reading.cancel()
        if pull.readings:
            await outlast(asyncio.gather(*pull.readings, return_exceptions=True), self.abort)
        if not self._field.withdraw(number):
            return
        hurry = asyncio.get_running_loop().call_later(self._settings.quiesce_s, self.abort)
        try:
            await outlast(pull.quiet, self.abort)
        finally:
            hurry.cancel()

    def _send(self, *messages: FromDestination) -> None:
        if self._control is None or self.is_over:
            raise StoreLost(f"{self._address}: {self._fault}")
        self._control.write(*map(encode, messages))

    async def _beat(self, control: FrameSocket) -> None:
        with contextlib.suppress(OSError):  # the reader learns of it
            while True:
                await asyncio.sleep(self._settings.beat_s)
                self._look_for_stalls()
                await control.send(encode(Alive()))

    def _look_for_stalls(self) -> None:
        """The peer lives, but what was taken does not come. A lane may tell of bytes as late as after `stall_s`."""
        heard_at = max([self._field.expected_at, *(lane.received_at for lane in self._lanes)])
        if self._field.is_waiting and time.monotonic() - heard_at > 2 * self._settings.stall_s:
            self._blame(TimeoutError("what was taken does not come"))
            self.abort()

    def _blame(self, fault: Exception) -> None:
        """Only the first fault says why the session broke."""
        if not self.is_over:
            self._fault = fault

    async def _end(self) -> None:
        """The session is aborted: fail its pulls, and wait for its lanes."""
        reason = str(self._fault) or type(self._fault).__name__
        for pull in self._pulls.values():
            pull.finish(pull.progress.result(HandoffState.FAILED, f"{self._address}: {reason}"))
        try:
            await outlast(asyncio.gather(*(lane.over for lane in self._lanes)), self.abort)
            await self._tasks.close()
            if self._reader is not None:
                await self._reader.close()
        finally:
            if self._control is not None:
                self._control.close()

    def __repr__(self) -> str:
        return f"<PullSession {self._address} pulls={len(self._pulls)} {self._field!r} fault={self._fault}>"
