"""The destination's side of a connection between two stores: many pulls, one reader that fills arena slots.

A slot belongs to the reader while a block arrives in it. A pull that ends meanwhile waits for that block, or, when it
does not come, breaks the connection: only then may the slot be used for something else.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from kvtransfer.errors import FramingError, KvTransferError, StoreLost, StoreRefused
from kvtransfer.frame_socket import FrameSocket
from kvtransfer.greeting import MAX_GREETING_BYTES, answer, verdict
from kvtransfer.pull_progress import PullProgress
from kvtransfer.tasks import TaskSet
from kvtransfer.tcp_frames import Announced, Block, Cancel, Pull, Want, encode, from_source
from kvtransfer.tcp_settings import TcpSettings
from kvtransfer.transport import Asked, BlockKey, BlockSink, HandoffState, PullResult

logger = logging.getLogger(__name__)


class _Pull:
    """One pull on this connection. `quiet` is unset while a block arrives for it."""

    def __init__(self, sink: BlockSink) -> None:
        self.progress = PullProgress(sink)
        self.ended: asyncio.Future[PullResult] = asyncio.get_running_loop().create_future()
        self.quiet = asyncio.Event()
        self.quiet.set()

    def finish(self, result: PullResult) -> PullResult:
        """Set the result, unless there is one."""
        if not self.ended.done():
            self.ended.set_result(result)
        return self.ended.result()


class PullConnection:
    """One connection to a peer. `run` until it breaks; `pull` any number of times meanwhile."""

    def __init__(self, address: str, settings: TcpSettings) -> None:
        self._address = address
        self._settings = settings
        self._pulls: dict[int, _Pull] = {}
        self._numbers = 0
        self._begun = asyncio.Event()  # greeted, or over before that
        self._is_greeted = False
        self._fault: Exception = StoreLost("the transport was closed")
        self._socket: FrameSocket | None = None
        self._runner: asyncio.Task[None] | None = None
        self._cancels = TaskSet()
        self.is_over = False

    @property
    def load(self) -> int:
        """How many pulls it carries."""
        return len(self._pulls)

    async def run(self, connect: Callable[[], Awaitable[FrameSocket]], secret: bytes, fingerprint: str) -> None:
        """Connect, greet and read. Never raises for the peer's faults: its pulls end as FAILED."""
        self._runner = asyncio.current_task()
        try:
            async with asyncio.timeout(self._settings.connect_s):
                self._socket = await connect()
                await self._greet(self._socket, secret, fingerprint)
            self._is_greeted = True
            self._begun.set()
            await self._read(self._socket)
        except (OSError, KvTransferError, msgspec.MsgspecError) as error:
            self._fault = error
        finally:
            self._over()
            await self._cancels.close()
            if self._socket is not None:
                self._socket.close()

    async def pull(self, asked: Asked, sink: BlockSink, deadline_s: float) -> PullResult:
        """See `Transport.pull`."""
        pull = _Pull(sink)
        self._numbers += 1
        number = self._numbers
        self._pulls[number] = pull
        try:
            async with asyncio.timeout(deadline_s):
                await self._begun.wait()
                await self._send(Pull(number, asked, deadline_s))
                return await asyncio.shield(pull.ended)
        except TimeoutError:
            return pull.finish(pull.progress.result(HandoffState.LATE, f"not complete after {deadline_s} s"))
        except (OSError, StoreLost) as error:
            return pull.finish(pull.progress.result(HandoffState.FAILED, str(error)))
        finally:
            del self._pulls[number]
            await self._quiesce(number, pull)

    def abort(self) -> None:
        """Break the connection now: from here on the reader touches no slot."""
        self.is_over = True
        if self._runner is not None:
            self._runner.cancel()
        if self._socket is not None:
            self._socket.shut()

    async def _greet(self, socket: FrameSocket, secret: bytes, fingerprint: str) -> None:
        socket.max_frame_bytes = MAX_GREETING_BYTES
        await socket.send(answer(await _body(socket), secret, fingerprint, "store"))
        verdict(await _body(socket))
        socket.max_frame_bytes = self._settings.max_frame_bytes

    async def _read(self, socket: FrameSocket) -> None:
        while (body := await socket.receive()) is not None:
            message = from_source.decode(body)
            if isinstance(message, Block):
                await self._receive_block(socket, message)
                continue
            pull = self._pulls.get(message.pull)
            if pull is None:
                continue
            if isinstance(message, Announced):
                await self._send(Want(message.pull, pull.progress.announced(message.keys)))
            else:
                pull.finish(pull.progress.ended(message))
        raise StoreLost("the peer closed the connection")

    async def _receive_block(self, socket: FrameSocket, block: Block) -> None:
        if not 0 <= block.payload_bytes <= self._settings.max_frame_bytes:
            raise FramingError(f"a payload of {block.payload_bytes} bytes")
        pull = self._pulls.get(block.pull)
        if pull is None:
            await socket.drain(block.payload_bytes)
            return
        key = pull.progress.take_key(block.position)
        slot = pull.progress.sink.reserve(key)
        if slot is None:
            pull.progress.dropped()
            await socket.drain(block.payload_bytes)
            return
        pull.quiet.clear()
        try:
            await self._fill(socket, slot, block, key, pull)
        finally:
            pull.quiet.set()

    async def _fill(self, socket: FrameSocket, slot: memoryview, block: Block, key: BlockKey, pull: _Pull) -> None:
        is_filled = False
        try:
            if len(slot) != block.payload_bytes:
                raise FramingError(f"a payload of {block.payload_bytes} bytes for a slot of {len(slot)}")
            await socket.receive_into(slot)
            is_filled = block.pull in self._pulls
        finally:
            if not is_filled:
                pull.progress.sink.abandon(key)
        if is_filled:
            pull.progress.sink.commit(key, block.checksum)
            pull.progress.received(block.payload_bytes)

    async def _quiesce(self, number: int, pull: _Pull) -> None:
        """Leave the pull so that nothing writes for it any more."""
        if not pull.ended.done() or pull.ended.result().state is not HandoffState.READY:
            self._send_soon(Cancel(number))
        try:
            async with asyncio.timeout(self._settings.quiesce_s):
                await pull.quiet.wait()
        except TimeoutError:
            self.abort()
        except asyncio.CancelledError:
            self.abort()
            raise

    async def _send(self, message: Pull | Want | Cancel) -> None:
        if self._socket is None or not self._is_greeted or self.is_over:
            raise StoreLost(f"{self._address}: {self._fault}")
        await self._socket.send(encode(message))

    def _send_soon(self, message: Cancel) -> None:
        if self._is_greeted and not self.is_over:
            self._cancels.spawn(self._send_cancel(message))

    async def _send_cancel(self, message: Cancel) -> None:
        with contextlib.suppress(OSError, StoreLost):  # a broken connection cancels all the same
            await self._send(message)

    def _over(self) -> None:
        self.is_over = True
        self._begun.set()
        if self._socket is not None:
            self._socket.shut()
        if isinstance(self._fault, StoreRefused):
            logger.warning("%s refused this store: %s", self._address, self._fault)
        reason = str(self._fault) or type(self._fault).__name__
        for pull in self._pulls.values():
            pull.finish(pull.progress.result(HandoffState.FAILED, f"{self._address}: {reason}"))

    def __repr__(self) -> str:
        return f"<PullConnection {self._address} pulls={len(self._pulls)} fault={self._fault}>"


async def _body(socket: FrameSocket) -> bytes:
    body = await socket.receive()
    if body is None:
        raise StoreLost("the peer closed the connection before the greeting was over")
    return body
