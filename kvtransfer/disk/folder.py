"""The folder of one store's block files. All calls block: they are made in threads of their own.

A file appears under its name only when it was written to its end, so that a kill leaves at most a `.part`, which the
next start removes. Each store has a folder to itself, held by a lock that ends with its process: a restarted store
finds the files of its predecessor, and two stores of one machine never share.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from kvtransfer.checksum import block_checksum
from kvtransfer.disk.block_file import HEAD_BYTES, BlockHead, decode_head
from kvtransfer.errors import TornFile
from kvtransfer.transport import BlockKey

MOST_STORES = 64
"""Of one namespace, below one path."""

PART = ".part"


class BlockFolder:
    """Files of one namespace, two levels deep."""

    def __init__(self, folder: Path, lock: int) -> None:
        """Use `claim`."""
        self.folder = folder
        self._lock = lock

    @classmethod
    def claim(cls, root: Path, namespace: str) -> "BlockFolder":
        """The first folder of the namespace that no other store holds. Raises `OSError`."""
        for number in range(MOST_STORES):
            folder = root / f"{namespace}-{number}"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            except BaseException:
                os.close(lock)
                raise
            else:
                return cls(folder, lock)
        raise OSError(f"{MOST_STORES} stores hold folders below {root} already")

    def scan(self, payload_bytes: int) -> list[BlockHead]:
        """Every whole file, the oldest first; the others are removed. Payloads are not read."""
        found = []
        for path in self.folder.glob("??/*"):
            try:
                found.append((path.stat().st_mtime, self._head_of(path, payload_bytes)))
            except (OSError, TornFile):
                with suppress(OSError):
                    path.unlink()
        return [head for _, head in sorted(found, key=lambda item: item[0])]

    def write(self, head: BlockHead, payload: memoryview) -> None:
        """Write a block's file. Raises `OSError`, and leaves nothing then."""
        path = self._path(head.key)
        part = path.with_name(path.name + PART)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            with part.open("wb", buffering=0) as file:
                _write_all(file.fileno(), head.of(payload).encode(), payload)
            part.rename(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise

    def read(self, key: BlockKey, into: memoryview) -> BlockHead:
        """Fill `into` with the block. Raises `OSError` when there is no such file, `TornFile` when it is not whole."""
        with self._path(key).open("rb", buffering=0) as file:
            head = decode_head(file.read(HEAD_BYTES))
            if head.key != key or head.payload_bytes != len(into):
                raise TornFile("the file is another block's")
            done = 0
            while done < len(into):
                count = file.readinto(into[done:])
                if not count:
                    raise TornFile(f"{done} of {len(into)} bytes")
                done += count
        if block_checksum(into) != head.digest:
            raise TornFile("the block is damaged")
        return head

    def remove(self, key: BlockKey) -> None:
        """Remove a block's file, if there is one."""
        with suppress(FileNotFoundError):
            self._path(key).unlink()

    def close(self) -> None:
        """Let others have the folder. The files stay."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _head_of(self, path: Path, payload_bytes: int) -> BlockHead:
        with path.open("rb", buffering=0) as file:
            head = decode_head(file.read(HEAD_BYTES))
            size = os.fstat(file.fileno()).st_size
        if path.name != head.key.hex() or head.payload_bytes != payload_bytes or size != HEAD_BYTES + payload_bytes:
            raise TornFile("the file is not as long as its head says, or another block's")
        return head

    def _path(self, key: BlockKey) -> Path:
        name = key.hex()
        return self.folder / name[-2:] / name


def _write_all(fd: int, *parts: bytes | memoryview) -> None:
    views = [memoryview(part) for part in parts]
    while views:
        written = os.writev(fd, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if views:
            views[0] = views[0][written:]
