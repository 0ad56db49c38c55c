"""The checksum is xxh3_64 of the bytes, whatever holds them."""

import numpy as np
import xxhash

from kvtransfer.checksum import block_checksum


def test_every_kind_of_buffer_gives_the_same_checksum() -> None:
    content = bytes(range(256)) * 16
    expected = xxhash.xxh3_64(content).intdigest()
    array = np.frombuffer(content, np.uint8)
    assert [block_checksum(b) for b in (content, bytearray(content), memoryview(content), array)] == [expected] * 4


def test_one_changed_bit_changes_it() -> None:
    content = bytearray(4096)
    before = block_checksum(content)
    content[1234] ^= 1
    assert block_checksum(content) != before
