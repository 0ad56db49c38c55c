"""Blocks as files: what is not whole is found out and never served."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtransfer.disk.block_file import HEAD_BYTES, BlockHead, decode_head
from kvtransfer.disk.folder import BlockFolder
from kvtransfer.errors import TornFile

PAYLOAD = bytes(range(256)) * 16
SIZE = len(PAYLOAD)
KEY = b"\x01" * 32
CHECKSUM = 2**64 - 7
"""What an engine said, which need not be the xxh3_64 of the payload."""


def head(key: bytes = KEY, payload: bytes = PAYLOAD, label: int | None = 2**64 - 1) -> BlockHead:
    return BlockHead(key, b"tenant88", label, CHECKSUM, len(payload)).of(memoryview(payload))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BlockFolder]:
    made = BlockFolder.claim(tmp_path, "namespace")
    yield made
    made.close()


def file_of(folder: BlockFolder) -> Path:
    (path,) = folder.folder.glob("??/*")
    return path


def read(folder: BlockFolder, key: bytes = KEY) -> bytes:
    into = bytearray(SIZE)
    folder.read(key, memoryview(into))
    return bytes(into)


def test_a_block_is_read_as_it_was_written(folder: BlockFolder) -> None:
    folder.write(head(), memoryview(PAYLOAD))
    assert folder.read(KEY, memoryview(bytearray(SIZE))) == head()
    assert read(folder) == PAYLOAD
    folder.remove(KEY)
    folder.remove(KEY)
    with pytest.raises(FileNotFoundError):
        read(folder)


@pytest.mark.parametrize("position", [0, 9, 40, HEAD_BYTES, HEAD_BYTES + SIZE - 1])
def test_any_flipped_bit_that_matters_is_found(folder: BlockFolder, position: int) -> None:
    folder.write(head(), memoryview(PAYLOAD))
    path = file_of(folder)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(TornFile):
        read(folder)


@pytest.mark.parametrize("length", [0, 1, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + SIZE - 1])
def test_a_file_that_is_cut_off_is_found_and_removed_at_a_start(folder: BlockFolder, length: int) -> None:
    folder.write(head(), memoryview(PAYLOAD))
    os.truncate(file_of(folder), length)
    with pytest.raises(TornFile):
        read(folder)
    assert folder.scan(SIZE) == []
    assert list(folder.folder.glob("??/*")) == []


def test_a_file_under_another_name_is_not_that_block(folder: BlockFolder) -> None:
    folder.write(head(), memoryview(PAYLOAD))
    other = b"\x02" * 31 + KEY[-1:]
    file_of(folder).rename(file_of(folder).with_name(other.hex()))
    with pytest.raises(TornFile):
        read(folder, other)
    assert folder.scan(SIZE) == []


def test_a_start_finds_the_whole_files_oldest_first_and_clears_the_rest(folder: BlockFolder) -> None:
    heads = [head(bytes([number]) * 32) for number in (3, 1, 2)]
    for number, each in enumerate(heads):
        folder.write(each, memoryview(PAYLOAD))
        os.utime(folder._path(each.key), (number, number))
    (folder.folder / "03" / ("03" * 32 + ".part")).write_bytes(b"half")
    folder.write(head(b"\x04" * 32, PAYLOAD[:64]), memoryview(PAYLOAD[:64]))
    assert folder.scan(SIZE) == heads
    assert len(list(folder.folder.glob("??/*"))) == 3


def test_a_full_disk_leaves_nothing_of_the_block(folder: BlockFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev

    def fills_up(fd: int, parts: list[memoryview]) -> int:
        real(fd, [parts[0][:10]])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", fills_up)
    with pytest.raises(OSError, match="No space left"):
        folder.write(head(), memoryview(PAYLOAD))
    assert list(folder.folder.glob("??/*")) == []


def test_stores_of_one_namespace_have_a_folder_each_and_the_next_life_gets_the_first(tmp_path: Path) -> None:
    first, second = BlockFolder.claim(tmp_path, "a"), BlockFolder.claim(tmp_path, "a")
    assert first.folder != second.folder
    assert first.folder.stat().st_mode & 0o077 == 0
    first.close()
    again = BlockFolder.claim(tmp_path, "a")
    assert again.folder == first.folder
    again.close()
    second.close()


def test_a_head_is_what_was_encoded() -> None:
    assert decode_head(head(label=None).encode()) == head(label=None)
    with pytest.raises(ValueError, match="does not fit"):
        head(b"k" * 300).encode()
