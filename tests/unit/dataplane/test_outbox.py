"""What the next write holds."""

import msgspec

from cluster.dataplane.frames import (
    Delta,
    Deltas,
    FromWorker,
    KvEvents,
    KvTier,
    Pong,
    StreamFailed,
    from_worker,
)
from cluster.dataplane.kv_feed import KvFeed
from cluster.dataplane.outbox import Outbox
from cluster.dataplane.wire_keys import pack_keys
from tests.unit.dataplane.peers import IDLE


def sent(outbox: Outbox) -> list[FromWorker]:
    return [from_worker.decode(chunk[4:]) for chunk in outbox.take()]


def test_deltas_of_one_output_become_one_and_leave_before_the_failure_of_their_stream() -> None:
    outbox = Outbox(1000)
    outbox.add_delta(1, Delta(0, [1], "a"))
    outbox.add(StreamFailed(1, "engine", "died"))
    outbox.add_delta(2, Delta(0, [9], "z"))
    outbox.add_delta(1, Delta(0, [2], "b"))
    assert sent(outbox) == [
        Deltas([(1, Delta(0, [1, 2], "ab")), (2, Delta(0, [9], "z"))]),
        StreamFailed(1, "engine", "died"),
    ]
    assert sent(outbox) == []


def test_only_the_latest_load_and_pong_wait() -> None:
    outbox = Outbox(1000)
    for number in range(3):
        outbox.add(Pong(number))
        outbox.add(msgspec.structs.replace(IDLE, running=number))
    assert sent(outbox) == [Pong(2), msgspec.structs.replace(IDLE, running=2)]


def test_an_aborted_stream_leaves_nothing() -> None:
    outbox = Outbox(1000)
    outbox.add_delta(1, Delta(0, [1]))
    outbox.add_delta(1, Delta(1, [1]))
    outbox.add_delta(2, Delta(0, [2]))
    outbox.forget(1)
    assert sent(outbox) == [Deltas([(2, Delta(0, [2]))])]


def test_deltas_that_do_not_fit_one_frame_are_split_and_one_that_never_fits_fails_its_stream() -> None:
    outbox = Outbox(200)
    outbox.add_delta(1, Delta(0, [1], "a" * 120))
    outbox.add_delta(2, Delta(0, [2], "b" * 400))
    outbox.add_delta(3, Delta(0, [3], "c" * 120))
    assert sent(outbox) == [
        Deltas([(1, Delta(0, [1], "a" * 120))]),
        StreamFailed(2, "engine", "the answer is larger than a frame may be"),
        Deltas([(3, Delta(0, [3], "c" * 120))]),
    ]


def test_kv_events_leave_frame_by_frame_and_each_tier_begins_with_a_snapshot() -> None:
    held: dict[KvTier, list[int]] = {"device": [1, 2], "host": [9]}
    feed = KvFeed(held.__getitem__)
    outbox = Outbox(1000)
    outbox.follow(feed)
    assert sent(outbox) == [KvEvents(0, "device", True, pack_keys([1, 2]), b"")]
    assert outbox.has_more
    assert sent(outbox) == [KvEvents(1, "host", True, pack_keys([9]), b"")]
    assert not outbox.has_more
    feed.change("device", [3], [])
    feed.change("device", [4], [1])
    assert sent(outbox) == [KvEvents(2, "device", False, pack_keys([3, 4]), pack_keys([1]))]
    feed.change("device", [5], [2])
    assert sent(outbox) == [KvEvents(3, "device", False, pack_keys([5]), pack_keys([2]))]
