"""The arena: anonymous shared memory cut into slots of equal size.

It is a memfd, handed to other processes as a file descriptor. It has no name in /dev/shm or any file system, so the
kernel takes it back when the last process that maps it is gone, however that process ended. The arena knows nothing
of keys or states: `kvtransfer.slots` says who may touch which slot.
"""

import mmap
import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Arena:
    """`slots` slots of `slot_bytes` bytes, back to back. The memory stays mapped as long as a view of it lives."""

    def __init__(self, fd: int, slots: int, slot_bytes: int) -> None:
        """Takes over `fd`, which `close` closes."""
        self.fd = fd
        self.slots = slots
        self.slot_bytes = slot_bytes
        self._view = memoryview(mmap.mmap(fd, slots * slot_bytes))
        self.array: NDArray[np.uint8] = np.frombuffer(self._view, np.uint8).reshape(slots, slot_bytes)

    @classmethod
    def create(cls, slots: int, slot_bytes: int) -> "Arena":
        """New memory, zero, not resident before `populate` or its first use. Raises `OSError`."""
        fd = os.memfd_create("baton-kv-arena", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, slots * slot_bytes)
            return cls(fd, slots, slot_bytes)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, slots: int, slot_bytes: int) -> "Arena":
        """Map an arena another process created. Raises `ValueError` when `fd` is smaller than it should be."""
        try:
            if os.fstat(fd).st_size < slots * slot_bytes:
                raise ValueError(f"arena of {os.fstat(fd).st_size} bytes cannot hold {slots} slots of {slot_bytes}")
            return cls(fd, slots, slot_bytes)
        except BaseException:
            os.close(fd)
            raise

    def slot(self, index: int) -> memoryview:
        """A writable view of one slot."""
        if not 0 <= index < self.slots:
            raise IndexError(f"slot {index} of {self.slots}")
        return self._view[index * self.slot_bytes : (index + 1) * self.slot_bytes]

    def views(self, indices: Iterable[int]) -> list[memoryview]:
        """`slot` of each of these, unchecked."""
        view, size = self._view, self.slot_bytes
        return [view[index * size : (index + 1) * size] for index in indices]

    def populate(self, first_byte: int, length: int) -> None:
        """Make a range resident and mapped by reading a byte of each page, so that no copy pays for it.

        Keeps the contents and releases the GIL. New memory costs about 1.5 s/GiB here, memory that another process
        populated about 0.1 s/GiB; an unpopulated slot is written at 0.8 GB/s instead of 11.
        """
        self.array.reshape(-1)[first_byte : first_byte + length : mmap.PAGESIZE].max(initial=0)

    def close(self) -> None:
        """Give up this process's hold. Views handed out stay valid until they are dropped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.array = np.empty((0, self.slot_bytes), np.uint8)
            self._view = memoryview(b"")
