"""Cases of the slot table that the state machine does not single out."""

import pytest

from kvtransfer.slot_records import Reservation, Watermarks
from kvtransfer.slots import SlotTable
from tests.support.slot_tables import slot_table

A, B, C, D = b"a", b"b", b"c", b"d"
ME, OTHER = 1, 2


@pytest.fixture
def table() -> SlotTable:
    return slot_table(3)


def fill(table: SlotTable, *keys: bytes) -> None:
    table.reserve(keys, ME)
    table.unpin(table.commit(keys, [0] * len(keys), ME).values())


def test_two_writers_of_one_key_get_one_slot(table: SlotTable) -> None:
    assert table.reserve([A], ME) == Reservation([0], 0)
    assert table.reserve([A], OTHER) == Reservation([None], 0)
    assert table.commit([A], [1], OTHER) == {}
    assert table.commit([A], [1], ME) == {A: 0}


def test_a_full_table_says_how_much_had_no_room(table: SlotTable) -> None:
    table.reserve([A, B], OTHER)
    assert table.reserve([A, C, D], ME) == Reservation([None, 2, None], 1)


def test_reserving_evicts_the_end_of_an_unused_chain_first(table: SlotTable) -> None:
    fill(table, A, B, C)
    table.unpin(table.pin([A, B, C]))
    table.reserve([D], ME)
    assert [key in table.readable() for key in (A, B, C)] == [True, True, False]
    assert table.statistics().evicted_blocks == 1


def test_a_block_asked_for_again_is_not_the_next_to_go(table: SlotTable) -> None:
    fill(table, A, B, C)
    table.reserve([C], OTHER)
    table.reserve([D], OTHER)
    assert [key in table.readable() for key in (A, B, C)] == [True, False, True]


def test_a_pinned_block_is_never_evicted(table: SlotTable) -> None:
    fill(table, A, B, C)
    table.pin([A, B, C])
    assert table.reserve([D], ME) == Reservation([None], 1)


def test_pinning_a_prefix_ends_at_the_first_gap_and_pinning_what_is_there_does_not(table: SlotTable) -> None:
    fill(table, A, C)
    assert table.pin([A, B, C]) == [0]
    assert table.pin_present([A, B, C]) == {A: 0, C: 1}


def test_a_committed_block_stays_until_who_committed_it_unpins_it(table: SlotTable) -> None:
    table.reserve([A, B, C], ME)
    committed = table.commit([A, B, C], [1, 2, 3], ME)
    assert table.reserve([D], ME).full == 1
    table.unpin(committed.values())
    assert table.reserve([D], ME).full == 0
    assert C not in table.readable()


def test_a_distrusted_block_can_be_written_again_while_it_is_read(table: SlotTable) -> None:
    fill(table, A)
    read = table.pin([A])
    table.distrust(A)
    assert A not in table.readable()
    fill(table, A)
    assert table.pin([A]) != read
    table.unpin(read)
    assert A in table.readable()
    table.check()


def test_an_unpin_without_a_pin_is_our_own_fault(table: SlotTable) -> None:
    fill(table, A)
    with pytest.raises(KeyError):
        table.unpin([0])


def test_its_repr_tells_the_truth(table: SlotTable) -> None:
    fill(table, A)
    table.pin([A])
    assert repr(table) == "<SlotTable free=2 pinned=1 pins=1>"


def test_evictions_are_counted_by_reason() -> None:
    table = slot_table(4, marks=Watermarks(2, 3))
    table.reserve([A, B, C], ME, b"x")
    table.unpin(table.commit([A, B, C], [0] * 3, ME).values())
    table.reserve([D, b"e"], ME, b"y")  # x holds more than its share of 1
    table.reserve([C], ME, b"x")
    assert table.evict(table.crowding) == 1
    assert table.statistics().evicted == {"share": 1, "room": 1, "watermark": 1}
