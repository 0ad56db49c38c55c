"""Nodes with networks of their own, and the wire between two of them, which delays, loses and can be cut.

A node is a thread in a network namespace: sockets that it opens, and threads that it starts, belong there, and the
namespace goes with it. Packets pass from one node's TUN device to the other's through `Wire`, which does what netem
would, on kernels that are built without. Needs root, as in a container's CI; `can_have_networks` says whether.
"""

import asyncio
import ctypes
import fcntl
import os
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
TUN = "/dev/net/tun"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
IFF_UP = 0x1
DEVICE = b"wire"
PACKET_BYTES = 65_536
START_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


def can_have_networks() -> str:
    """Why there can be none here; "" when there can."""
    try:
        Node("10.77.0.9").close()
    except OSError as error:
        return f"no network namespace with a TUN device: {error}"
    return ""


class Node:
    """A loop in a thread of its own, with loopback and an address that only the wire reaches."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.device = -1
        self._loop = asyncio.new_event_loop()
        self._fault: OSError | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node {address}")
        self._thread.start()
        assert self._ready.wait(START_S)
        if self._fault is not None:
            self.close()
            raise self._fault

    def do(self, work: Coroutine[Any, Any, T], deadline_s: float) -> T:
        """Run it there; what it returns. Raises `TimeoutError` after `deadline_s`."""
        return self.spawn(_within(work, deadline_s)).result()

    def spawn(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin it there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop, the thread and with it the network."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self.device >= 0:
            os.close(self.device)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            if _libc.unshare(CLONE_NEWNET) < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            _configure(b"lo", "127.0.0.1")
            self.device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.device, TUNSETIFF, struct.pack("16sH22x", DEVICE, IFF_TUN | IFF_NO_PI))
            _configure(DEVICE, self.address)
        except OSError as error:
            self._fault = error
        self._ready.set()
        self._loop.run_forever()


class Wire:
    """Between two nodes, from `start` to `close`; runs in the caller's loop. Loses by a seeded draw."""

    def __init__(self, ends: tuple[Node, Node], delay_s: float, loss: float, seed: int = 1) -> None:
        self.is_cut = False
        self.carried = self.lost = 0
        self._ends = ends
        self._delay_s = delay_s
        self._loss = loss
        self._draw = random.Random(seed).random
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire")

    def __enter__(self) -> "Wire":
        near, far = (node.device for node in self._ends)
        self._loop.add_reader(near, self._carry, near, far)
        self._loop.add_reader(far, self._carry, far, near)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _carry(self, source: int, target: int) -> None:
        packet = os.read(source, PACKET_BYTES)
        if self.is_cut or self._draw() < self._loss:
            self.lost += 1
            return
        self._loop.call_later(self._delay_s, self._arrive, target, packet)

    def _arrive(self, target: int, packet: bytes) -> None:
        if not self.is_cut:
            self.carried += 1
            os.write(target, packet)


async def _within(work: Coroutine[Any, Any, T], deadline_s: float) -> T:
    async with asyncio.timeout(deadline_s):
        return await work


def _configure(device: bytes, address: str) -> None:
    """Give it the address, with a network of 256, and put it up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
            where = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, struct.pack("16s16s", device, where))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", device, IFF_UP))
