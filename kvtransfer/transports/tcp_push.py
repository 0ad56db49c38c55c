"""The source's side of a pair of stores: answers pulls by pushing blocks as they are committed.

A connection turns out to be a control connection, with pulls and lanes of its own, or a lane of another's session.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import astuple

from kvtransfer.errors import FramingError, NeverAnnounced, RequestRefused, StoreRefused
from kvtransfer.greeting import refusal
from kvtransfer.signals import Signals
from kvtransfer.transport import BlockKey, BlockSource, CommittedBlocks
from kvtransfer.transports.frame_socket import FrameSocket
from kvtransfer.transports.nixl import NixlAgent, NixlFault
from kvtransfer.transports.push_progress import PushProgress
from kvtransfer.transports.tcp_frames import (
    Alive,
    Announced,
    Cancel,
    Ended,
    FromDestination,
    Memory,
    Pull,
    Ready,
    Session,
    Take,
    encode,
    from_destination,
)
from kvtransfer.transports.tcp_lanes import Parcel, SendingLanes
from kvtransfer.transports.tcp_settings import TcpSettings

logger = logging.getLogger(__name__)

READY_BLOCKS = 256
"""How many blocks one `Ready` names at most."""

OPEN_BLOCKS = 2 * READY_BLOCKS
"""How many blocks of one pull are offered or on their way at most."""

EARLY_OFFERS = (64, READY_BLOCKS, OPEN_BLOCKS)
"""Up to which announced block is offered before the peer has said what it wants: few at first, so that the first bytes
leave soon, and the others right behind, so that lanes have work from then on.
"""


class _Push:
    def __init__(self, task: "asyncio.Task[None]") -> None:
        self.task = task
        self.progress = PushProgress()
        self.wanted: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()


class PushSession:
    """One peer that pulls from us. `run` until it leaves; its pushes and lanes end with it."""

    def __init__(
        self, name: str, control: FrameSocket, source: BlockSource, settings: TcpSettings, nixl: NixlAgent | None
    ) -> None:
        self.token = secrets.token_bytes(16)
        self.lanes = SendingLanes(settings, self._sent, self._broken)
        self._name = name
        self._control = control
        self._source = source
        self._settings = settings
        self._pushes: dict[int, _Push] = {}
        self._changed = Signals()
        self._nixl = nixl
        self._is_shown = False

    async def run(self) -> None:
        """Serve. Raises for the peer's faults, after everything has ended."""
        try:
            await self._control.send(encode(Session(self.token)))
            await self._serve()
        finally:
            await self.lanes.close()

    async def _serve(self) -> None:
        """Read until the peer leaves. A fault of the peer cancels its pushes before it is raised."""
        fault: Exception | None = None
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._beat())
            try:
                await self._control.deliver(lambda bodies: self._received_all(bodies, group))
            except (FramingError, StoreRefused, OSError) as error:
                fault = error
            beat.cancel()
            for push in self._pushes.values():
                push.task.cancel()
        if fault is not None:
            raise fault

    def _received_all(self, bodies: Sequence[bytes], group: asyncio.TaskGroup) -> None:
        for body in bodies:
            self._received(from_destination.decode(body), group)

    def _received(self, message: FromDestination, group: asyncio.TaskGroup) -> None:
        if isinstance(message, Alive):
            return
        if isinstance(message, Pull):
            self._start(message, group)
            return
        push = self._pushes.get(message.pull)
        if push is None:
            return
        if isinstance(message, Cancel):
            push.task.cancel()
        elif isinstance(message, Take):
            self._take(push, message)
        elif not push.wanted.done():
            push.wanted.set_result(push.progress.wanted(message.positions))

    def _start(self, request: Pull, group: asyncio.TaskGroup) -> None:
        if request.pull in self._pushes:
            raise StoreRefused(f"pull {request.pull} is under way already")
        if len(self._pushes) >= self._settings.max_pulls:
            raise StoreRefused(f"{self._settings.max_pulls} pulls are under way, the most allowed")
        if not 0.0 <= request.deadline_s <= self._settings.max_deadline_s:
            raise StoreRefused(f"deadline_s is {request.deadline_s}, allowed are 0 to {self._settings.max_deadline_s}")
        task = group.create_task(self._push(request))
        self._pushes[request.pull] = _Push(task)
        task.add_done_callback(lambda _: self._pushes.pop(request.pull))

    async def _push(self, request: Pull) -> None:
        try:
            async with asyncio.timeout(request.deadline_s + self._settings.stall_s):
                ended = await self._answer(request)
        except TimeoutError:
            ended = Ended(request.pull, "late", "the deadline passed at the source")
        except OSError:
            return  # the reader sees it as well, and ends the session
        with contextlib.suppress(OSError):
            await self._control.send(encode(ended))

    async def _answer(self, request: Pull) -> Ended:
        asked = request.asked
        try:
            handoff_id = asked if isinstance(asked, str) else self._source.offer(asked)
            keys = await self._source.announced(handoff_id, request.deadline_s)
        except TimeoutError:
            return Ended(request.pull, "late", "not announced in time")
        except (NeverAnnounced, RequestRefused) as error:
            return Ended(request.pull, "failed", str(error))
        push = self._pushes[request.pull]
        try:
            with self._nixl.being_read() if self._nixl is not None else contextlib.nullcontext():
                return await self._push_blocks(request.pull, push, handoff_id, keys)
        finally:
            self._source.release(push.progress.withdraw())
            self._source.leave(handoff_id)

    async def _push_blocks(self, pull: int, push: _Push, handoff_id: str, keys: Sequence[BlockKey]) -> Ended:
        push.progress.announced(len(keys))
        await self._show_memory()
        said = [encode(Announced(pull, list(keys)))]
        for end in EARLY_OFFERS:
            first = push.progress.offered_blocks
            said += self._offer(pull, push, range(first, len(keys)), self._source.ready(keys[first:end]))
            if said:
                await self._control.send(*said)
                said = []
        wanted: Sequence[int] = ()
        if push.progress.offered_blocks < len(keys):
            wanted = [position for position in await push.wanted if position >= push.progress.offered_blocks]
        left = len(wanted)
        while left:
            await self._until(push, OPEN_BLOCKS - READY_BLOCKS)
            positions = wanted[-left:][:READY_BLOCKS]
            blocks = await self._source.committed(handoff_id, [keys[position] for position in positions])
            if not blocks.slots:
                break
            left -= len(blocks.slots)
            await self._control.send(*self._offer(pull, push, positions, blocks))
        await self._until(push, 0)
        if left:
            return Ended(pull, "failed", f"{left} of {len(wanted)} blocks are not at the source")
        return Ended(pull, "complete")

    def _offer(self, pull: int, push: _Push, positions: Sequence[int], blocks: CommittedBlocks) -> list[bytes]:
        """Offer those of the blocks at these positions that there are; what to say, if there are any."""
        slots = blocks.slots
        if not slots:
            return []
        offered, arena = list(positions[: len(slots)]), self._source.arena
        assert arena is not None
        if len(slots) * arena.slot_bytes <= self._settings.in_band_bytes:
            content = b"".join(arena.views(slots))
            push.progress.brought(len(slots))
            self._source.count_pushed(len(slots), "tcp")
            self._source.release(slots)
            return [encode(Ready(pull, offered, list(blocks.checksums), [], content))]
        push.progress.offer(offered, slots)
        return [encode(Ready(pull, offered, list(blocks.checksums), list(slots)))]

    async def _show_memory(self) -> None:
        """Once: how to read from our arena without lanes."""
        if self._nixl is None or self._is_shown or self._source.arena is None:
            return
        self._is_shown = True
        try:
            access = await self._nixl.access(self._source.arena)
        except NixlFault as error:
            self._nixl.say_once(self._name, str(error))
            return
        await self._control.send(encode(Memory(*astuple(access))))

    async def _until(self, push: _Push, open_blocks: int) -> None:
        """Return when no more than so many blocks are offered or on their way."""
        while push.progress.open_blocks > open_blocks:
            await self._changed.changed(push)

    def _take(self, push: _Push, message: Take) -> None:
        arena = self._source.arena
        if push.progress.is_over:
            return  # its last offers were withdrawn meanwhile
        if arena is None:
            raise StoreRefused("a block is taken that was not ready")
        taking = push.progress.take(message.positions, arena.slot_bytes)
        if message.read_blocks > 0:
            self._source.count_pushed(min(message.read_blocks, len(taking.declined)), "nixl")
        self._source.release(taking.declined)
        for piece in taking.pieces:
            self.lanes.put(Parcel(push.progress, message.pull, piece.positions, arena, piece.slots))
        self._changed.notify(push)

    def _sent(self, parcel: Parcel) -> None:
        parcel.recipient.sent(len(parcel.slots))
        if not parcel.recipient.is_over:
            self._source.count_pushed(len(parcel.slots), "tcp")
        self._source.release(parcel.slots)
        push = self._pushes.get(parcel.pull)
        if push is not None:
            self._changed.notify(push)

    def _broken(self, error: Exception) -> None:
        logger.info("%s: a lane is gone: %s", self._name, error or type(error).__name__)
        self._control.shut()

    async def _beat(self) -> None:
        with contextlib.suppress(OSError):  # the reader learns of it
            while True:
                await asyncio.sleep(self._settings.beat_s)
                await self._control.send(encode(Alive()))


async def refuse(connection: FrameSocket, error: FramingError | StoreRefused) -> None:
    """Tell a peer why its connection closes."""
    with contextlib.suppress(OSError):
        await connection.send(refusal(error))
