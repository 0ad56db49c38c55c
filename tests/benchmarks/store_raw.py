"""The yardstick of the store benchmark: `sendmsg` and `recvmsg_into` in blocking loops, one thread to a stream.

Nothing is asked, pinned, announced or verified: positions, bytes, and a byte back when all is there.
"""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import numpy as np

from tests.benchmarks.router_serve import serve
from tests.benchmarks.store_cases import CASES, Bytes, Case, Peer, Places, check, fastest, memory

BUFFER_BYTES = 256 * 1024
MAX_VECTORS = 1024
STREAMS = (1, 2, 4)


def options(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def views(array: Bytes, places: Places, case: Case) -> list[memoryview]:
    whole, size = memoryview(array), case.block_bytes
    return [whole[place * size : (place + 1) * size] for place in places.tolist()]


def send(sock: socket.socket, buffers: list[memoryview]) -> None:
    move(buffers, sock.sendmsg)


def receive(sock: socket.socket, buffers: list[memoryview]) -> None:
    move(buffers, lambda some: sock.recvmsg_into(some, 0, socket.MSG_WAITALL)[0])


def move(buffers: list[memoryview], call: Callable[[list[memoryview]], int]) -> None:
    first = 0
    while first < len(buffers):
        count = call(buffers[first : first + MAX_VECTORS])
        if not count:
            raise EOFError
        while count:
            if count < len(buffers[first]):
                buffers[first] = buffers[first][count:]
                break
            count -= len(buffers[first])
            first += 1


def receiver(pipe: Connection, case: Case) -> None:
    """The destination."""
    target = memory(case, filled=False)
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)
    options(listener)
    threading.Thread(target=accept, args=(listener, target, case), daemon=True).start()
    pipe.send(listener.getsockname())
    while (plan := pipe.recv()) is not None:
        check(case, target, *plan)
        pipe.send("checked")


def accept(listener: socket.socket, target: Bytes, case: Case) -> None:
    while True:
        sock, _ = listener.accept()
        options(sock)
        threading.Thread(target=land, args=(sock, target, case), daemon=True).start()


def land(sock: socket.socket, target: Bytes, case: Case) -> None:
    count = bytearray(4)
    try:
        while True:
            receive(sock, [memoryview(count)])
            places = np.empty(struct.unpack("<I", count)[0], np.int64)
            receive(sock, [memoryview(places).cast("B")])
            receive(sock, views(target, places, case))
            sock.sendall(b"k")
    except EOFError:
        return


class Raw:
    """The orders."""

    def prepare(self, case: str) -> None:
        """Start the other process, and connect."""
        self.case = CASES[case]
        self.peer = Peer(receiver, self.case)
        where = self.peer.hear()
        self.source = memory(self.case, filled=True)
        self.sockets = [socket.create_connection(where) for _ in range(max(STREAMS))]
        for sock in self.sockets:
            options(sock)
        sources, targets = self.case.plan(0)
        self.streams = fastest(STREAMS, lambda streams: self._move(sources, targets, streams))

    def move(self, number: int) -> float:
        """Bytes a second, with the number of streams that was the fastest."""
        sources, targets = self.case.plan(number)
        seconds = self._move(sources, targets, self.streams)
        self.peer.ask((sources, targets))
        return self.case.moved_bytes / seconds

    def one(self, count: int) -> float:
        """Microseconds to move one block."""
        place = np.zeros(1, np.int64)
        times = sorted(self._move(place, place, 1) for _ in range(count))
        return 1e6 * times[count // 2]

    def finish(self) -> None:
        """This case is over."""
        for sock in self.sockets:
            sock.close()
        self.peer.stop()

    def _move(self, sources: Places, targets: Places, streams: int) -> float:
        began = time.perf_counter()
        if streams == 1:
            self._stream(self.sockets[0], sources, targets)
        else:
            shares: Sequence[threading.Thread] = [
                threading.Thread(target=self._stream, args=(sock, sources[i::streams], targets[i::streams].copy()))
                for i, sock in enumerate(self.sockets[:streams])
            ]
            for share in shares:
                share.start()
            for share in shares:
                share.join()
        return time.perf_counter() - began

    def _stream(self, sock: socket.socket, sources: Places, targets: Places) -> None:
        head = [memoryview(struct.pack("<I", len(targets))), memoryview(targets).cast("B")]
        send(sock, head + views(self.source, sources, self.case))
        sock.recv(1)


if __name__ == "__main__":
    side = Raw()
    asyncio.run(serve({"prepare": side.prepare, "move": side.move, "one": side.one, "finish": side.finish}))
