"""The two lifecycles of the store as tables. Nothing else says what may follow what.

A slot: FREE → WRITING → PINNED ⇄ COMMITTED → FREE: who commits a block has it pinned at first. A pinned block that
turns out corrupt is DISTRUSTED: its readers finish, nobody new gets it, and it is free when the last pin goes.
A hand-off: PENDING → READY, or PENDING → FAILED.
"""

from enum import Enum

from kvtransfer.transport import HandoffState


class SlotState(Enum):
    """Who may touch a slot: nobody, its one writer, readers that pin it first, its pinned readers."""

    FREE = "free"
    WRITING = "writing"
    COMMITTED = "committed"
    PINNED = "pinned"
    DISTRUSTED = "distrusted"

    __hash__ = object.__hash__  # members are compared by identity, and looked up at every step of every block


class SlotEvent(Enum):
    """What happens to a slot. `LAST_UNPIN` is the unpin that leaves no pin."""

    RESERVE = "reserve"
    COMMIT = "commit"
    ABANDON = "abandon"
    PIN = "pin"
    UNPIN = "unpin"
    LAST_UNPIN = "last unpin"
    EVICT = "evict"
    DISTRUST = "distrust"

    __hash__ = object.__hash__


SLOT_TRANSITIONS: dict[SlotState, dict[SlotEvent, SlotState]] = {
    SlotState.FREE: {SlotEvent.RESERVE: SlotState.WRITING},
    SlotState.WRITING: {SlotEvent.COMMIT: SlotState.PINNED, SlotEvent.ABANDON: SlotState.FREE},
    SlotState.COMMITTED: {
        SlotEvent.PIN: SlotState.PINNED,
        SlotEvent.EVICT: SlotState.FREE,
        SlotEvent.DISTRUST: SlotState.FREE,
    },
    SlotState.PINNED: {
        SlotEvent.PIN: SlotState.PINNED,
        SlotEvent.UNPIN: SlotState.PINNED,
        SlotEvent.LAST_UNPIN: SlotState.COMMITTED,
        SlotEvent.DISTRUST: SlotState.DISTRUSTED,
    },
    SlotState.DISTRUSTED: {
        SlotEvent.UNPIN: SlotState.DISTRUSTED,
        SlotEvent.LAST_UNPIN: SlotState.FREE,
    },
}

AFTER: dict[SlotEvent, dict[SlotState, SlotState]] = {
    event: {before: row[event] for before, row in SLOT_TRANSITIONS.items() if event in row} for event in SlotEvent
}
"""The same by event, for many slots to which one thing happens."""


class HandoffEvent(Enum):
    """What happens to an announced hand-off."""

    COMPLETE = "complete"  # its last missing block is committed
    FAIL = "fail"  # concluded, or past its time, with blocks missing that nobody is writing


HANDOFF_TRANSITIONS: dict[HandoffState, dict[HandoffEvent, HandoffState]] = {
    HandoffState.PENDING: {
        HandoffEvent.COMPLETE: HandoffState.READY,
        HandoffEvent.FAIL: HandoffState.FAILED,
    },
    HandoffState.READY: {},
    HandoffState.FAILED: {},
}
