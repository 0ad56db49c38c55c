"""Block keys on the wire."""

import struct

import pytest

from cluster.dataplane.frames import KvEvents, WorkerInfo
from cluster.dataplane.wire_keys import pack_keys, unpack_keys
from cluster.errors import ProtocolViolation
from cluster.gateway.kv_index_feed import KvIndexFeed
from routing.index_blocks import BlockIndex

KEYS = [0, 1, 2**64 - 1, 2**63]


def test_keys_are_little_endian_unsigned_64_bit() -> None:
    assert pack_keys(KEYS) == struct.pack("<4Q", *KEYS)
    assert unpack_keys(pack_keys(KEYS)).tolist() == KEYS
    assert unpack_keys(b"").tolist() == []


@pytest.mark.parametrize(("stored", "removed"), [(b"1234567", b""), (b"", b"123456789")])
def test_what_is_not_whole_keys_ends_the_connection_and_changes_nothing(stored: bytes, removed: bytes) -> None:
    index = BlockIndex()
    feed = KvIndexFeed(index)
    feed.kv_placed("w", WorkerInfo("w", "decode", "n", "vllm", "", "", 16, 1_024, "e"))
    feed.kv_events("w", KvEvents(0, "device", True, pack_keys(KEYS), b""))
    with pytest.raises(ProtocolViolation, match="not whole block keys"):
        feed.kv_events("w", KvEvents(1, "device", False, stored, removed))
    assert index.statistics().keys == len(KEYS)
