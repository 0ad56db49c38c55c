"""Severs a TCP connection of another process: its descriptor is borrowed (`pidfd_getfd`) and shut down.

Both ends see what a cable that is cut and a firewall's reset look like: the connection ends, at once, in the middle of
whatever was being said. Needs the right to trace the process, which its ancestors and root have.
"""

import ctypes
import os
import socket
from dataclasses import dataclass
from typing import Any

import psutil

PIDFD_GETFD = 438
"""The system call's number, the same on every architecture."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Wire:
    """An established connection as the process `pid` has it."""

    pid: int
    descriptor: int
    local_port: int
    remote_port: int

    def sever(self) -> None:
        """End it in both directions. Raises `OSError` when it is not there any more."""
        with _borrowed(self.pid, self.descriptor) as end:
            if end.getsockname()[1] != self.local_port or end.getpeername()[1] != self.remote_port:
                raise ConnectionError(f"descriptor {self.descriptor} of {self.pid} is another connection now")
            end.shutdown(socket.SHUT_RDWR)


def wires(near: int, far: int) -> list[Wire]:
    """The connections that the process `near` has opened to the process `far`."""
    listening = {c.laddr.port for c in _connections(far) if c.status == psutil.CONN_LISTEN}
    return [
        Wire(near, c.fd, c.laddr.port, c.raddr.port)
        for c in _connections(near)
        if c.status == psutil.CONN_ESTABLISHED and c.raddr and c.raddr.port in listening
    ]


def _connections(pid: int) -> list[Any]:
    try:
        return list(psutil.Process(pid).net_connections("tcp"))
    except psutil.NoSuchProcess:
        return []


def _borrowed(pid: int, descriptor: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        copy = _libc.syscall(PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot borrow descriptor {descriptor} of {pid}: {os.strerror(number)}")
        return socket.socket(fileno=copy)
    finally:
        os.close(process)
