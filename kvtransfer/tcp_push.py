"""The source's side of a connection between two stores: answers pulls by pushing blocks as they are committed."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

import msgspec

from kvtransfer.errors import FramingError, NeverAnnounced, RequestRefused, StoreRefused
from kvtransfer.frame_socket import FrameSocket
from kvtransfer.greeting import MAX_GREETING_BYTES, Gatekeeper, Welcome, refusal
from kvtransfer.tcp_frames import Announced, Block, Cancel, Ended, Pull, Want, encode, from_destination
from kvtransfer.tcp_settings import TcpSettings
from kvtransfer.transport import BlockKey, BlockSource, CommittedBlock

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Push:
    task: asyncio.Task[None]
    announced_blocks: int = 0
    wanted: asyncio.Future[Sequence[int]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class PushConnection:
    """One peer that pulls from us. `run` until it leaves; its pushes end with it."""

    def __init__(self, socket: FrameSocket, source: BlockSource, settings: TcpSettings) -> None:
        self.name = "a newcomer"
        self._socket = socket
        self._source = source
        self._settings = settings
        self._pushes: dict[int, _Push] = {}

    async def run(self, secret: bytes, fingerprint: str, address: str) -> None:
        """Greet and serve. Never raises for the peer's faults: they are logged, told to the peer and end the run."""
        try:
            async with asyncio.timeout(self._settings.connect_s):
                await self._greet(Gatekeeper(secret, fingerprint), address)
            await self._serve()
        except (FramingError, StoreRefused) as error:
            await self._refuse(error)
        except msgspec.MsgspecError as error:
            await self._refuse(StoreRefused(f"bad frame: {error}"))
        except OSError as error:
            logger.info("%s is gone: %s", self.name, error or type(error).__name__)
        finally:
            self._socket.close()

    async def _greet(self, gatekeeper: Gatekeeper, address: str) -> None:
        self._socket.max_frame_bytes = MAX_GREETING_BYTES
        await self._socket.send(gatekeeper.challenge())
        body = await self._socket.receive()
        if body is None:
            raise ConnectionResetError("left before greeting")
        self.name = f"store {gatekeeper.admit(body).name!r}"
        self._socket.max_frame_bytes = self._settings.max_frame_bytes
        await self._socket.send(encode(Welcome("", address)))

    async def _serve(self) -> None:
        """Read until the peer leaves. A fault of the peer cancels its pushes before it is raised."""
        fault: Exception | None = None
        async with asyncio.TaskGroup() as group:
            try:
                while (body := await self._socket.receive()) is not None:
                    self._received(from_destination.decode(body), group)
            except (FramingError, StoreRefused, msgspec.MsgspecError, OSError) as error:
                fault = error
            for push in self._pushes.values():
                push.task.cancel()
        if fault is not None:
            raise fault

    def _received(self, message: Pull | Want | Cancel, group: asyncio.TaskGroup) -> None:
        push = self._pushes.get(message.pull)
        if isinstance(message, Pull):
            self._start(message, group)
        elif push is None:
            return
        elif isinstance(message, Cancel):
            push.task.cancel()
        elif not push.wanted.done():
            if any(not 0 <= position < push.announced_blocks for position in message.positions):
                raise StoreRefused("a block is wanted that was not announced")
            push.wanted.set_result(message.positions)

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
                ended = await self._push_blocks(request)
        except TimeoutError:
            ended = Ended(request.pull, "late", "the deadline passed at the source")
        except OSError:
            return  # the reader sees it as well, and ends the connection
        try:
            await self._socket.send(encode(ended))
        except OSError:
            return

    async def _push_blocks(self, request: Pull) -> Ended:
        asked = request.asked
        try:
            handoff_id = asked if isinstance(asked, str) else self._source.offer(asked)
            keys = await self._source.announced(handoff_id, request.deadline_s)
        except TimeoutError:
            return Ended(request.pull, "late", "not announced in time")
        except (NeverAnnounced, RequestRefused) as error:
            return Ended(request.pull, "failed", str(error))
        positions = await self._wanted(request.pull, handoff_id, keys)
        sent = 0
        async with aclosing(self._committed(handoff_id, [keys[p] for p in positions])) as blocks:
            async for block in blocks:
                await self._send_block(request.pull, positions[sent], block)
                sent += 1
        if sent < len(positions):
            return Ended(request.pull, "failed", f"the source has {sent} of {len(positions)} blocks")
        return Ended(request.pull, "complete")

    async def _wanted(self, pull: int, handoff_id: str, keys: Sequence[BlockKey]) -> Sequence[int]:
        """What the peer lacks. Should it never say so, the source learns that nobody collects this hand-off."""
        push = self._pushes[pull]
        push.announced_blocks = len(keys)
        try:
            await self._socket.send(encode(Announced(pull, list(keys))))
            return await push.wanted
        except BaseException:
            async with aclosing(self._committed(handoff_id, ())) as nothing:
                async for _ in nothing:
                    pass
            raise

    async def _send_block(self, pull: int, position: int, block: CommittedBlock) -> None:
        header = Block(pull, position, block.checksum, len(block.payload))
        await self._socket.send(encode(header), block.payload)

    def _committed(self, handoff_id: str, wanted: Sequence[BlockKey]) -> AsyncGenerator[CommittedBlock, None]:
        return cast(AsyncGenerator[CommittedBlock, None], self._source.committed(handoff_id, wanted))

    async def _refuse(self, error: FramingError | StoreRefused) -> None:
        logger.warning("%s refused: %s", self.name, error)
        try:
            await self._socket.send(refusal(error))
        except OSError:
            return
