"""What a gateway knows of a worker's blocks, whenever it reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dataplane.frames import KV_TIERS, KvEvents, KvTier
from cluster.dataplane.kv_feed import KvFeed
from cluster.dataplane.kv_inbox import KvInbox
from cluster.dataplane.wire_keys import KEY_BYTES, pack_keys, unpack_keys
from cluster.errors import ProtocolViolation
from tests.unit.dataplane.peers import worker_info

KEYS = st.sets(st.integers(0, 9), max_size=4)
STEPS = st.lists(st.one_of(st.tuples(st.sampled_from(KV_TIERS), KEYS), st.none()), max_size=30)


class Known:
    """A `KvListener` that believes what it hears."""

    def __init__(self) -> None:
        self.keys: dict[KvTier, set[int]] = {}
        self.log: list[str] = []

    def kv_placed(self, replica_id: str, info: object) -> None:
        self.log.append("placed")

    def kv_events(self, replica_id: str, events: KvEvents) -> None:
        known = set() if events.snapshot else self.keys[events.tier]
        stored, removed = set(unpack_keys(events.stored)), set(unpack_keys(events.removed))
        assert not known & stored
        assert known >= removed
        self.keys[events.tier] = (known | stored) - removed

    def kv_lost(self, replica_id: str) -> None:
        self.log.append("lost")

    def kv_dropped(self, replica_id: str) -> None:
        self.log.append("dropped")


@given(STEPS, st.integers(0, 5), st.integers(1, 4))
def test_what_was_sent_is_what_the_tiers_hold_and_what_waits_is_bounded(
    steps: list[tuple[KvTier, set[int]] | None], bound: int, most: int
) -> None:
    """A step toggles keys of one tier; None lets the gateway read one frame. In the end it reads all."""
    held: dict[KvTier, set[int]] = {tier: set() for tier in KV_TIERS}
    feed, known = KvFeed(held.__getitem__, bound, most), Known()
    inbox = KvInbox("w1", known)
    inbox.entered(worker_info())
    for step in [*steps, *[None] * 40]:
        if step is not None:
            tier, keys = step
            stored, removed = keys - held[tier], keys & held[tier]
            held[tier] ^= keys
            feed.change(tier, stored, removed)
            assert sum(map(len, feed._tiers.values())) <= 2 * (bound + 10)
        elif (events := feed.take()) is not None:
            assert len(events.stored) + len(events.removed) <= KEY_BYTES * most
            inbox.received(events)
    assert (known.keys, feed.waiting) == (held, False)


def test_the_tiers_take_turns() -> None:
    feed = KvFeed(lambda tier: range(4), max_frame_keys=2)
    frames = [feed.take() for _ in range(5)]
    assert [f and (f.sequence, f.tier, f.snapshot, unpack_keys(f.stored).tolist()) for f in frames] == [
        (0, "device", True, [0, 1]),
        (1, "host", True, [0, 1]),
        (2, "device", False, [2, 3]),
        (3, "host", False, [2, 3]),
        None,
    ]


DEVICE = [
    KvEvents(0, "device", True, pack_keys([1]), b""),
    KvEvents(1, "device", False, pack_keys([2]), pack_keys([1])),
]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([*DEVICE, KvEvents(3, "device", False, b"", b"")], "number 3 came instead of 2"),
        ([*DEVICE, KvEvents(1, "device", False, b"", b"")], "number 1 came instead of 2"),
        ([*DEVICE, KvEvents(2, "host", False, b"", b"")], "host tier began without a snapshot"),
    ],
)
def test_a_gap_ends_the_connection_and_the_next_begins_anew(frames: list[KvEvents], reason: str) -> None:
    known = Known()
    inbox = KvInbox("w1", known)
    inbox.entered(worker_info())
    *good, bad = frames
    for frame in good:
        inbox.received(frame)
    with pytest.raises(ProtocolViolation, match=reason):
        inbox.received(bad)
    assert known.keys == {"device": {2}}
    inbox.closed()
    inbox.entered(worker_info())
    with pytest.raises(ProtocolViolation, match="began without"):
        inbox.received(KvEvents(0, "device", False, pack_keys([1]), b""))
    assert known.log == ["placed", "lost", "placed"]


def test_a_worker_that_is_not_listed_any_more_is_dropped_once_and_not_heard_again() -> None:
    known = Known()
    inbox = KvInbox("w1", known)
    inbox.entered(worker_info())
    inbox.retire()
    inbox.retire()
    inbox.received(DEVICE[0])
    inbox.closed()
    assert (known.log, known.keys) == (["placed", "dropped"], {})
