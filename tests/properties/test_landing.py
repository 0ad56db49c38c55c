"""Blocks that arrive, against a naive model: each is written once, by one lane, and never after its pull has ended."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kvtransfer.errors import FramingError
from kvtransfer.transports.landing import LandingField

SLOT_BYTES = 8
PULLS = st.integers(0, 2)
POSITIONS = st.lists(st.integers(0, 5), min_size=1, max_size=3)


class Landing(RuleBasedStateMachine):
    """`expected` is what a pull has taken; `begun` the lanes that write, by pull."""

    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.field = LandingField()
        self.memory = bytearray(SLOT_BYTES * 6)
        self.expected: dict[int, set[int]] = {}
        self.writing: list[int] = []

    @rule(pull=PULLS, positions=POSITIONS)
    def expect(self, pull: int, positions: list[int]) -> None:
        view = memoryview(self.memory)
        self.field.expect(pull, {p: view[p * SLOT_BYTES : (p + 1) * SLOT_BYTES] for p in positions})
        self.expected.setdefault(pull, set()).update(positions)

    @rule(target=begun, pull=PULLS, positions=POSITIONS)
    def begin(self, pull: int, positions: list[int]) -> object:
        if pull not in self.expected:
            assert self.field.begin(pull, positions, SLOT_BYTES) is None
            return multiple()
        if not self.expected[pull].issuperset(positions) or len(set(positions)) < len(positions):
            with pytest.raises(FramingError):
                self.field.begin(pull, positions, SLOT_BYTES)
            return multiple()
        slots = self.field.begin(pull, positions, SLOT_BYTES)
        assert slots is not None
        assert [slot.nbytes for slot in slots] == [SLOT_BYTES] * len(positions)
        self.expected[pull].difference_update(positions)
        self.writing.append(pull)
        return pull

    @rule(pull=PULLS, position=st.integers(0, 5))
    def another_size_is_refused(self, pull: int, position: int) -> None:
        if position in self.expected.get(pull, set()):
            with pytest.raises(FramingError):
                self.field.begin(pull, [position], SLOT_BYTES + 1)

    @rule(pull=consumes(begun))
    def finish(self, pull: int) -> None:
        self.field.finish(pull)
        self.writing.remove(pull)

    @rule(pull=PULLS)
    def withdraw(self, pull: int) -> None:
        assert self.field.withdraw(pull) == (pull in self.writing)
        self.expected.pop(pull, None)

    @invariant()
    def it_knows_what_is_open(self) -> None:
        assert self.field.landing == len(self.writing)
        assert self.field.is_waiting == any(self.expected.values())


TestLanding = Landing.TestCase
