"""The lifecycle tables are complete and nothing in them is stranded."""

from kvtransfer.states import HANDOFF_TRANSITIONS, SLOT_TRANSITIONS, SlotEvent, SlotState
from kvtransfer.transport import HandoffState


def test_every_slot_state_leads_back_to_free() -> None:
    reaches_free = {SlotState.FREE}
    for _ in SlotState:
        reaches_free |= {state for state, row in SLOT_TRANSITIONS.items() if reaches_free & set(row.values())}
    assert reaches_free == set(SlotState) == set(SLOT_TRANSITIONS)


def test_every_slot_event_happens_somewhere() -> None:
    assert {event for row in SLOT_TRANSITIONS.values() for event in row} == set(SlotEvent)


def test_only_unpinned_committed_slots_are_evicted() -> None:
    assert [state for state, row in SLOT_TRANSITIONS.items() if SlotEvent.EVICT in row] == [SlotState.COMMITTED]


def test_a_settled_hand_off_stays_settled() -> None:
    assert HANDOFF_TRANSITIONS[HandoffState.READY] == HANDOFF_TRANSITIONS[HandoffState.FAILED] == {}
