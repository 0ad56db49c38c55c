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
    for key in keys:
        table.commit(key, 0, ME)


def test_two_writers_of_one_key_get_one_slot(table: SlotTable) -> None:
    assert table.reserve([A], ME) == Reservation([0], 0)
    assert table.reserve([A], OTHER) == Reservation([None], 0)
    assert table.commit(A, 1, OTHER) is None
    assert table.commit(A, 1, ME) == 0


def test_a_full_table_says_how_much_had_no_room(table: SlotTable) -> None:
    table.reserve([A, B], OTHER)
    assert table.reserve([A, C, D], ME) == Reservation([None, 2, None], 1)


def test_reserving_evicts_the_end_of_an_unused_chain_first(table: SlotTable) -> None:
    fill(table, A, B, C)
    table.unpin([slot for key in (A, B, C) if (slot := table.pin(key)) is not None])
    table.reserve([D], ME)
    assert [key in table.readable() for key in (A, B, C)] == [True, True, False]
    assert table.statistics().evicted_blocks == 1


def test_a_block_asked_for_again_is_not_the_next_to_go(table: SlotTable) -> None:
    fill(table, A, B, C)
    table.reserve([A], OTHER)
    table.reserve([D], OTHER)
    assert [key in table.readable() for key in (A, B, C)] == [True, False, True]


def test_a_pinned_block_is_never_evicted(table: SlotTable) -> None:
    fill(table, A, B, C)
    for key in (A, B, C):
        table.pin(key)
    assert table.reserve([D], ME) == Reservation([None], 1)


def test_a_distrusted_block_can_be_written_again_while_it_is_read(table: SlotTable) -> None:
    fill(table, A)
    slot = table.pin(A)
    assert slot is not None
    table.distrust(A)
    assert A not in table.readable()
    fill(table, A)
    assert table.pin(A) != slot
    table.unpin([slot])
    assert A in table.readable()
    table.check()


def test_an_unpin_without_a_pin_is_our_own_fault(table: SlotTable) -> None:
    fill(table, A)
    with pytest.raises(KeyError):
        table.unpin([0])


def test_its_repr_tells_the_truth(table: SlotTable) -> None:
    fill(table, A)
    table.pin(A)
    assert repr(table) == "<SlotTable free=2 pinned=1 pins=1>"


def test_evictions_are_counted_by_reason() -> None:
    table = slot_table(4, marks=Watermarks(2, 3))
    table.reserve([A, B, C], ME, b"x")
    for key in (A, B, C):
        table.commit(key, 0, ME)
    table.reserve([D, b"e"], ME, b"y")  # x holds more than its share of 1
    table.reserve([A], ME, b"x")
    assert table.evict(table.crowding) == 1
    assert table.statistics().evicted == {"share": 1, "room": 1, "watermark": 1}
