"""The arena is memory without a name that several processes see."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from kvtransfer.arena import Arena


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(4, 4096)
    yield arena
    arena.close()


def test_what_one_mapping_writes_another_reads(arena: Arena) -> None:
    other = Arena.attach(os.dup(arena.fd), 4, 4096)
    arena.slot(2)[:] = b"x" * 4096
    assert bytes(other.slot(2)) == b"x" * 4096
    assert other.array[2].tobytes() == b"x" * 4096
    other.array[3] = np.arange(4096, dtype=np.uint8)
    assert arena.slot(3)[255] == 255
    other.close()


def test_slots_do_not_overlap(arena: Arena) -> None:
    for index in range(4):
        arena.slot(index)[:] = bytes([index]) * 4096
    assert [set(bytes(arena.slot(index))) for index in range(4)] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("index", [-1, 4])
def test_a_slot_outside_is_an_error(arena: Arena, index: int) -> None:
    with pytest.raises(IndexError):
        arena.slot(index)


def test_populating_keeps_the_contents(arena: Arena) -> None:
    arena.slot(1)[:] = b"y" * 4096
    arena.populate(0, 1 << 30)
    arena.populate(1 << 30, 1)
    assert bytes(arena.slot(1)) == b"y" * 4096


def test_a_closed_arena_leaves_handed_out_views_alone(arena: Arena) -> None:
    view, fd = arena.slot(0), arena.fd
    view[:] = b"z" * 4096
    arena.close()
    arena.close()
    assert bytes(view) == b"z" * 4096
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_too_small_a_file_is_refused_and_closed(arena: Arena) -> None:
    fd = os.dup(arena.fd)
    with pytest.raises(ValueError, match="cannot hold 5 slots of 4096"):
        Arena.attach(fd, 5, 4096)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_nothing_appears_in_shared_memory_folders(arena: Arena) -> None:
    assert os.readlink(f"/proc/self/fd/{arena.fd}").startswith("/memfd:baton-kv-arena")
