"""Cases of the hand-off table that the state machine does not single out."""

import pytest

from kvtransfer.errors import RequestRefused
from kvtransfer.handoffs import HandoffPlan, HandoffTable
from kvtransfer.transport import HandoffState

A, B = b"a", b"b"
PRODUCER = 1


@pytest.fixture
def table() -> HandoffTable:
    return HandoffTable(max_handoffs=2, ttl_s=10.0)


def state(table: HandoffTable, handoff_id: str = "h") -> HandoffState | None:
    view = table.find(handoff_id)
    return None if view is None else view.state


def test_all_blocks_committed_already_is_ready_at_once(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A, B], {A: 0, B: 1}, 0.0)
    assert state(table) is HandoffState.READY
    assert table.pins == 2


def test_a_commit_pins_the_block_and_wakes_the_waiter(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A, B], {}, 0.0)
    assert table.committed({A: 0}) == HandoffPlan((), ["h"], [0])
    assert (state(table), table.pins) == (HandoffState.PENDING, 1)


def test_concluding_with_blocks_missing_fails_at_once_and_drops_the_pins(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A, B], {A: 0}, 0.0)
    assert table.conclude("h", lambda _: False) == HandoffPlan([0], ["h"])
    assert state(table) is HandoffState.FAILED


def test_a_concluded_hand_off_waits_for_another_writer_of_its_block(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {}, 0.0)
    table.conclude("h", lambda key: key == A)
    assert state(table) is HandoffState.PENDING
    table.committed({A: 0})
    assert state(table) is HandoffState.READY


def test_a_concluded_hand_off_fails_when_that_writer_gives_up(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {}, 0.0)
    table.conclude("h", lambda key: key == A)
    table.lost(A)
    assert state(table) is HandoffState.FAILED


def test_a_failed_hand_off_keeps_its_pins_while_somebody_waits(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A, B], {A: 0}, 0.0)
    table.join("h")
    assert table.conclude("h", lambda _: False).unpin == ()
    table.leave("h")
    assert table.collect("h", 0.0) == HandoffPlan([0])


def test_a_collected_hand_off_is_remembered_without_pins(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {A: 0}, 0.0)
    assert table.collect("h", 1.0) == HandoffPlan([0])
    assert (state(table), table.open_count) == (HandoffState.READY, 0)


def test_what_was_given_up_before_its_announcement_is_not_pinned(table: HandoffTable) -> None:
    table.collect("h", 0.0)
    assert table.announce("h", PRODUCER, [A, B], {A: 0}, 1.0).unpin == [0]
    assert table.committed({B: 1}).pin == []
    assert (state(table), table.pins) == (HandoffState.READY, 0)


def test_a_hand_off_past_its_time_is_dropped_with_its_pins(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {A: 0}, 0.0)
    assert table.expire(9.9) == HandoffPlan([], [])
    assert table.expire(10.0).unpin == [0]
    assert state(table) is None


def test_too_many_open_hand_offs_are_refused_and_collected_ones_make_room(table: HandoffTable) -> None:
    table.announce("x", PRODUCER, [A], {A: 0}, 0.0)
    table.announce("y", PRODUCER, [B], {}, 0.0)
    with pytest.raises(RequestRefused, match="2 hand-offs are open, the most allowed"):
        table.announce("z", PRODUCER, [A], {A: 0}, 0.0)
    table.collect("x", 0.0)
    table.announce("z", PRODUCER, [A], {A: 0}, 0.0)
    assert (state(table, "x"), state(table, "z")) == (None, HandoffState.READY)


def test_announcing_twice_is_refused_while_the_first_is_pending(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {}, 0.0)
    with pytest.raises(RequestRefused, match="already announced"):
        table.announce("h", PRODUCER, [A], {}, 0.0)


def test_a_settled_hand_off_may_be_announced_again(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {A: 0}, 0.0)
    assert table.announce("h", PRODUCER, [B], {}, 0.0).unpin == [0]
    assert state(table) is HandoffState.PENDING


def test_a_hand_off_that_was_never_announced_fails_for_who_waits_and_who_asks_later(table: HandoffTable) -> None:
    table.join("h")
    assert table.never_announced("h", PRODUCER, 0.0).changed == ["h"]
    view = table.find("h")
    assert view is not None
    assert (view.state, view.keys) == (HandoffState.FAILED, ())
    table.leave("h")
    table.check()


def test_a_hand_off_announced_after_that_pins_nothing(table: HandoffTable) -> None:
    table.never_announced("h", PRODUCER, 0.0)
    assert table.announce("h", PRODUCER, [A], {A: 7}, 0.0).unpin == [7]
    assert table.pins == 0
    table.check()


def test_an_announced_hand_off_is_not_touched_by_that(table: HandoffTable) -> None:
    table.announce("h", PRODUCER, [A], {}, 0.0)
    assert table.never_announced("h", PRODUCER, 0.0) == HandoffPlan()
    view = table.find("h")
    assert view is not None
    assert view.state is HandoffState.PENDING
