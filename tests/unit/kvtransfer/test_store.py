"""The store as the source of pulls, and hand-offs under pressure."""

import asyncio
from collections.abc import Iterator

import pytest

from kvtransfer.counters import Moved
from kvtransfer.inspection import Oldest
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState
from tests.unit.kvtransfer.conftest import until

KEYS = [bytes([i]) * 32 for i in range(4)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Iterator[Store]:
    store = Store(StoreSettings(4 * 64, "unused", handoff_ttl_s=10.0), clock)
    store.attach(64)
    yield store
    store.check()
    store.close()


def commit(store: Store, owner: int, *keys: bytes) -> None:
    store.reserve(owner, keys)
    store.commit(owner, keys, [0] * len(keys))


async def pushed(store: Store, wanted: list[bytes], handoff_id: str = "h") -> list[bytes]:
    """Take every block, asserting that each is pinned while it is taken."""
    taken: list[bytes] = []
    store.join(handoff_id)
    try:
        while slots := (await store.committed(handoff_id, wanted[len(taken) :])).slots:
            assert store.slot_statistics().pinned >= len(slots)
            taken += [store._slots.look(slot).key for slot in slots]
            store.count_pushed(len(slots), "tcp")
            store.release(slots)
    finally:
        store.leave(handoff_id)
    return taken


async def test_blocks_are_pushed_in_order_and_the_hand_off_is_collected(store: Store) -> None:
    owner = store.open_owner()
    store.announce(owner, "h", KEYS)
    push = asyncio.create_task(pushed(store, KEYS))
    for key in reversed(KEYS):
        await asyncio.sleep(0)
        commit(store, owner, key)
    assert await push == KEYS
    assert (store.slot_statistics().pins, store.open_handoffs) == (0, 0)
    assert store.counters.traffic == {("pushed", "tcp"): Moved(4, 256)}


async def test_a_push_ends_early_when_the_producer_fails(store: Store) -> None:
    owner = store.open_owner()
    store.announce(owner, "h", KEYS)
    commit(store, owner, *KEYS[:2])
    push = asyncio.create_task(pushed(store, KEYS))
    await asyncio.sleep(0)
    store.conclude(owner, "h")
    assert await push == KEYS[:2]


async def test_a_push_ends_early_when_a_block_is_gone(store: Store) -> None:
    owner = store.open_owner()
    commit(store, owner, *KEYS)
    store.announce(owner, "h", KEYS)
    store.distrust(KEYS[1:2])
    assert await pushed(store, KEYS) == KEYS[:1]


async def test_a_push_of_an_unknown_hand_off_is_empty(store: Store) -> None:
    assert await pushed(store, KEYS) == []


async def test_a_cancelled_push_leaves_no_pin(store: Store) -> None:
    owner = store.open_owner()
    store.announce(owner, "h", KEYS)
    commit(store, owner, KEYS[0])
    push = asyncio.create_task(pushed(store, KEYS))
    await until(lambda: store.counters.traffic == {("pushed", "tcp"): Moved(1, 64)})
    push.cancel()
    await asyncio.wait([push])
    assert store.slot_statistics().pins == 0


async def test_waiting_for_an_announcement_ends_with_it(store: Store) -> None:
    announced = asyncio.create_task(store.announced("h", 5.0))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    store.announce(store.open_owner(), "h", KEYS)
    assert list(await announced) == KEYS


async def test_waiting_for_an_announcement_in_vain_means_that_nobody_will_collect(store: Store) -> None:
    with pytest.raises(TimeoutError):
        await store.announced("h", 0.0)
    owner = store.open_owner()
    commit(store, owner, *KEYS)
    store.announce(owner, "h", KEYS)
    assert store.slot_statistics().pins == 0


def test_an_uncollected_hand_off_keeps_its_blocks_until_its_time_is_over(store: Store, clock: Clock) -> None:
    owner = store.open_owner()
    commit(store, owner, *KEYS)
    store.announce(owner, "h", KEYS)
    assert store.reserve(owner, [b"new"]).full == 1
    clock.now = 10.0
    store.expire()
    assert store.reserve(owner, [b"new"]).full == 0


def test_a_refused_announcement_pins_nothing(store: Store) -> None:
    owner = store.open_owner()
    commit(store, owner, KEYS[0])
    store.announce(owner, "h", KEYS)
    with pytest.raises(Exception, match="already announced"):
        store.announce(owner, "h", KEYS)
    assert store.slot_statistics().pins == 1


def test_releasing_a_hand_off_that_nobody_waits_for_drops_its_pins(store: Store) -> None:
    owner = store.open_owner()
    commit(store, owner, *KEYS)
    store.announce(owner, "h", KEYS)
    store.release_handoff(store.open_owner(), "h")
    assert (store.slot_statistics().pins, store.open_handoffs) == (0, 0)


def test_a_hand_off_released_before_it_is_announced_keeps_no_pins(store: Store) -> None:
    owner = store.open_owner()
    store.release_handoff(store.open_owner(), "h")
    commit(store, owner, *KEYS)
    store.announce(owner, "h", KEYS)
    assert (store.slot_statistics().pins, store.open_handoffs) == (0, 0)


def test_a_concluded_hand_off_fails_when_the_other_writer_of_its_block_goes(store: Store) -> None:
    producer, writer = store.open_owner(), store.open_owner()
    store.reserve(writer, KEYS[:1])
    store.announce(producer, "h", KEYS[:1])
    store.conclude(producer, "h")
    before = store.find("h")
    store.release_owner(writer)
    after = store.find("h")
    assert before is not None
    assert after is not None
    assert (before.state, after.state) == (HandoffState.PENDING, HandoffState.FAILED)


def test_a_peer_that_announces_a_block_twice_makes_it_be_pinned_once(store: Store) -> None:
    owner = store.open_owner()
    store.reserve(owner, [b"k"])
    store.commit(owner, [b"k"], [1])
    sink = PullSink(store)
    sink.missing([b"k", b"k"])
    assert store.slot_statistics().pins == 1
    sink.close()
    assert store.slot_statistics().pins == 0
    store.check()


async def test_a_pull_that_waits_for_a_local_writer_goes_on_when_it_leaves(store: Store) -> None:
    writer, sink = store.open_owner(), PullSink(store)
    store.reserve(writer, KEYS[:1])
    assert list(sink.missing(KEYS[:2])) == KEYS[1:2]
    settled = asyncio.create_task(sink.settle())
    await asyncio.sleep(0)
    assert not settled.done()
    store.release_owner(writer)
    async with asyncio.timeout(5):
        await settled
    sink.close()


def test_a_producer_that_goes_lets_its_committed_blocks_be_evicted(store: Store) -> None:
    owner, other = store.open_owner(), store.open_owner()
    store.announce(owner, "h", [*KEYS, b"more"])
    commit(store, owner, *KEYS)
    assert store.reserve(other, [b"new"]).full == 1
    store.release_owner(owner)
    assert store.reserve(other, [b"new"]).full == 0


def test_before_anybody_attached_there_is_no_room() -> None:
    store = Store(StoreSettings(1024, "unused"))
    assert store.reserve(store.open_owner(), KEYS).full == len(KEYS)
    assert store.pin(store.open_owner(), KEYS) == []
    store.check()


async def test_offered_blocks_stay_until_they_are_pushed(store: Store) -> None:
    owner = store.open_owner()
    commit(store, owner, *KEYS)
    store.label(KEYS[:3], [10, 11, 12])
    offer = store.offer([10, 11, 12, 13])
    assert list(await store.announced(offer, 1.0)) == KEYS[:3]
    assert store.reserve(owner, [b"new"]).slots == [3]
    assert store.reserve(owner, [b"newer"]).full == 1
    assert await pushed(store, KEYS[:3], offer) == KEYS[:3]
    store.leave(offer)
    assert store.slot_statistics().pins == 0


def test_a_label_leads_nowhere_once_its_block_is_gone(store: Store) -> None:
    owner = store.open_owner()
    commit(store, owner, *KEYS[:2])
    store.label(KEYS[:2], [10, 11])
    store.distrust(KEYS[:1])
    assert store.labelled([10, 11]) == []
    assert store.labelled([11, 10]) == KEYS[1:2]


# Who holds what for how long


def test_the_oldest_pin_and_the_oldest_writer_are_told_with_their_names(store: Store, clock: Clock) -> None:
    assert (store.oldest_pin(), store.oldest_writing()) == (None, None)
    writer, reader, waiter = store.open_owner("writer"), store.open_owner("reader"), store.open_owner("waiter")
    commit(store, writer, *KEYS[:2])
    clock.now = 1.0
    store.reserve(writer, KEYS[2:3])
    clock.now = 2.0
    store.reserve(reader, KEYS[3:])
    store.pin(reader, KEYS[:1])
    clock.now = 3.0
    store.gather(waiter, "h", KEYS[3:])  # nothing is there to pin
    store.gather(waiter, "h", KEYS[:2])
    store.pin(reader, KEYS[:1])
    clock.now = 5.0
    assert (store.oldest_pin(), store.oldest_writing()) == (Oldest("reader", 3.0), Oldest("writer", 4.0))
    store.unpin(reader, KEYS[:1])
    store.commit(writer, KEYS[2:3], [0])
    assert (store.oldest_pin(), store.oldest_writing()) == (Oldest("reader", 2.0), Oldest("reader", 3.0))
    store.release_owner(reader)
    assert (store.oldest_pin(), store.oldest_writing()) == (Oldest("waiter", 2.0), None)
    store.release_handoff(waiter, "h")
    assert store.oldest_pin() is None


def test_a_hand_off_that_nobody_fetches_is_the_oldest_pin(store: Store, clock: Clock) -> None:
    producer = store.open_owner()
    commit(store, producer, *KEYS)
    store.announce(producer, "h", KEYS)
    clock.now = 9.0
    assert store.oldest_pin() == Oldest("hand-off h", 9.0)
    clock.now = 10.0
    store.expire()
    assert store.oldest_pin() is None
