"""A block is settled once, when every rank has reported its part of it."""

from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.connector.orders import LoadResult, SavedBlock, SaveResult
from kvtransfer.connector.parts import LoadParts, SavesUnderWay, Settled

KEYS = (b"a", b"b", b"c")
NOTHING = Settled()


def saved(batch: int, checksum: int, *keys: bytes) -> SaveResult:
    return SaveResult(batch, [SavedBlock(key, checksum) for key in keys])


def test_a_block_is_whole_with_its_last_part() -> None:
    under_way = SavesUnderWay(ranks=2)
    under_way.order(1, KEYS)
    assert under_way.settle(saved(1, 3, *KEYS)) == NOTHING
    assert under_way.settle(saved(1, 4, b"a")) == Settled({b"a": 7})
    assert b"a" not in under_way
    assert len(under_way) == 2


def test_checksums_are_added_modulo_two_to_the_64() -> None:
    under_way = SavesUnderWay(ranks=2)
    under_way.order(1, [b"a"])
    under_way.settle(saved(1, 2**64 - 1, b"a"))
    assert under_way.settle(saved(1, 3, b"a")) == Settled({b"a": 2})


def test_a_block_that_one_rank_could_not_save_is_abandoned_once_all_have_reported() -> None:
    under_way = SavesUnderWay(ranks=2)
    under_way.order(1, [b"a"])
    assert under_way.settle(SaveResult(1, unsaved=[b"a"])) == NOTHING
    assert under_way.settle(saved(1, 4, b"a")) == Settled(unsaved=[b"a"])


def test_a_late_report_of_an_earlier_reservation_does_not_count() -> None:
    under_way = SavesUnderWay(ranks=1)
    under_way.order(1, [b"a"])
    under_way.forget()
    assert under_way.settle(saved(1, 5, b"a")) == NOTHING
    under_way.order(2, [b"a"])
    assert under_way.settle(saved(1, 5, b"a")) == NOTHING
    assert under_way.settle(saved(2, 6, b"a")) == Settled({b"a": 6})


@given(st.integers(1, 8), st.data())
def test_in_any_order_of_reports_every_block_is_settled_once(ranks: int, data: st.DataObject) -> None:
    reports = [(rank, key, data.draw(st.booleans())) for rank in range(ranks) for key in KEYS]
    under_way = SavesUnderWay(ranks)
    under_way.order(1, KEYS)
    settled: list[bytes] = []
    for rank, key, is_saved in data.draw(st.permutations(reports)):
        one = saved(1, 1 << rank, key) if is_saved else SaveResult(1, unsaved=[key])
        ended = under_way.settle(one)
        whole = all(is_there for _, other, is_there in reports if other == key)
        assert ended.checksums == ({key: 2**ranks - 1} if whole and ended != NOTHING else {})
        settled += [*ended.checksums, *ended.unsaved]
    assert sorted(settled) == sorted(KEYS)
    assert len(under_way) == 0


def test_a_load_is_as_bad_as_all_its_parts_and_as_slow_as_the_slowest() -> None:
    parts = LoadParts(missing=2)
    assert not parts.take(LoadResult("r", corrupt=[3], seconds=0.5))
    assert parts.take(LoadResult("r", failed=[4], seconds=0.25))
    assert (parts.corrupt, parts.failed, parts.seconds) == ({3}, {4}, 0.5)
