"""A blocking connection to the node's store, for engine processes. Safe to share between threads.

Any trouble with the socket raises `StoreLost`, and the client is dead from then on: the store has released all that
this connection held. Reconnecting is the caller's decision; `connect` takes one round trip more than a request.
"""

import itertools
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kvtransfer.arena import Arena
from kvtransfer.errors import FramingError, RequestRefused, StoreLost, StoreRefused
from kvtransfer.framing import BodyDecoder, FrameBuffer, frame
from kvtransfer.greeting import Refused, answer, verdict
from kvtransfer.inspection import Statistics, StoreStatistics
from kvtransfer.protocol import (
    Abandon,
    Announce,
    Attach,
    Attached,
    Commit,
    Conclude,
    Distrust,
    Done,
    Failed,
    Pin,
    Pinned,
    PinnedBlock,
    Reply,
    Request,
    Reserve,
    Reserved,
    Unpin,
)
from kvtransfer.seal import Seal
from kvtransfer.tenant import NO_TENANT, Tenant
from kvtransfer.transport import BlockKey

RECEIVE_BYTES = 256 * 1024

R = TypeVar("R")

_encode = msgspec.msgpack.Encoder().encode
_reply = BodyDecoder[Any](Reply | Refused)


class StoreClient:
    """One greeted connection. `timeout_s` bounds every request."""

    def __init__(self, sock: socket.socket) -> None:
        """Use `connect`."""
        self.epoch = ""
        self.address = ""
        self._sock = sock
        self._buffer = FrameBuffer()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._fds: list[int] = []
        self._is_lost = False

    @classmethod
    def connect(
        cls, socket_name: str, fingerprint: str, name: str, secret: bytes, timeout_s: float = 10.0
    ) -> "StoreClient":
        """Connect and greet. Raises `StoreLost` when nobody answers in time, `StoreRefused` when not let in."""
        client = cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        client._sock.settimeout(timeout_s)
        try:
            client._sock.connect("\0" + socket_name)
            client._greet(fingerprint, name, secret)
        except OSError as error:
            client.close()
            raise StoreLost(f"store {socket_name!r}: {error}") from error
        except BaseException:
            client.close()
            raise
        return client

    @property
    def is_lost(self) -> bool:
        """Whether the connection is dead."""
        return self._is_lost

    def attach(self, slot_bytes: int, seal: Seal | None = None) -> Arena:
        """Map the arena. The caller closes it. Raises `RequestRefused` when its slots have another size."""
        attached = self._ask(Attach(next(self._ids), slot_bytes, seal), Attached)
        with self._lock:
            if not self._fds:
                raise StoreLost("the store sent no arena")
            fd = self._fds.pop()
        return Arena.attach(fd, attached.slots, attached.slot_bytes)

    def reserve(self, keys: Sequence[BlockKey], tenant: Tenant = NO_TENANT) -> Reserved:
        """Slots to write these blocks of a tenant into."""
        return self._ask(Reserve(next(self._ids), list(keys), tenant), Reserved)

    def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int]) -> int:
        """The reserved slots hold whole blocks now; how many were still ours."""
        return self._ask(Commit(next(self._ids), list(keys), list(checksums)), Done).count

    def abandon(self, keys: Sequence[BlockKey]) -> int:
        """The reserved slots will not be written; how many were still ours."""
        return self._ask(Abandon(next(self._ids), list(keys)), Done).count

    def announce(self, handoff_id: str, keys: Sequence[BlockKey]) -> None:
        """Name the blocks of a hand-off, in prompt order. Raises `RequestRefused` when it is announced already."""
        self._ask(Announce(next(self._ids), handoff_id, list(keys)), Done)

    def conclude(self, handoff_id: str) -> None:
        """Nothing more will be committed for this hand-off."""
        self._ask(Conclude(next(self._ids), handoff_id), Done)

    def pin(self, keys: Sequence[BlockKey]) -> list[PinnedBlock]:
        """Pin the longest readable prefix of `keys`."""
        return self._ask(Pin(next(self._ids), list(keys)), Pinned).blocks

    def unpin(self, keys: Sequence[BlockKey]) -> int:
        """Drop one pin of each key; how many there were."""
        return self._ask(Unpin(next(self._ids), list(keys)), Done).count

    def distrust(self, keys: Sequence[BlockKey]) -> int:
        """These blocks failed their checksum; how many were still known."""
        return self._ask(Distrust(next(self._ids), list(keys)), Done).count

    def statistics(self) -> StoreStatistics:
        """The store's own snapshot."""
        return self._ask(Statistics(next(self._ids)), StoreStatistics)

    def close(self) -> None:
        """End the connection; the store releases all it held. Safe to call twice, from any thread."""
        self._is_lost = True
        self._sock.close()
        while self._fds:
            os.close(self._fds.pop())

    def __enter__(self) -> "StoreClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StoreClient epoch={self.epoch} {'lost' if self._is_lost else 'open'}>"

    def _greet(self, fingerprint: str, name: str, secret: bytes) -> None:
        self._sock.sendall(frame(answer(self._next_body(), secret, fingerprint, name)))
        welcome = verdict(self._next_body())
        self.epoch, self.address = welcome.epoch, welcome.address

    def _ask(self, request: Request, kind: type[R]) -> R:
        with self._lock:
            if self._is_lost:
                raise StoreLost("the connection is closed")
            try:
                self._sock.sendall(frame(_encode(request)))
                reply = _reply.decode(self._next_body())
            except (OSError, FramingError) as error:
                self.close()
                raise StoreLost(str(error) or type(error).__name__) from error
            except BaseException:
                self.close()
                raise
            return self._checked(reply, request.id, kind)

    def _checked(self, reply: Any, request_id: int, kind: type[R]) -> R:
        if isinstance(reply, Refused):
            self.close()
            raise StoreRefused(reply.reason)
        if isinstance(reply, Failed) and reply.id == request_id:
            raise RequestRefused(reply.reason)
        if not isinstance(reply, kind) or reply.id != request_id:  # type: ignore[attr-defined]
            self.close()
            raise StoreLost(f"the store answered out of turn: {type(reply).__name__}")
        return reply

    def _next_body(self) -> bytes:
        while (body := self._buffer.next_frame()) is None:
            data, fds, _, _ = socket.recv_fds(self._sock, RECEIVE_BYTES, 1)
            self._fds += fds
            if not data:
                raise StoreLost("the store closed the connection")
            self._buffer.feed(data)
        return body
