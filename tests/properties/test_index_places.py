"""Where blocks lie, against a plain dict: any 64-bit keys, growth and shrinking, many sets of places, little room."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from routing.index_places import Places
from routing.packed_keys import PackedKeys, pack
from routing.prefix import Run

TOP = 2**64 - 1
PLENTY_BYTES = 2**30

# Ranges begin around 0, around the top, and where only the upper bits of keys differ; they overlap, and go both ways.
RANGES = st.builds(
    lambda start, step, length, forward: [(start + step * i) % 2**64 for i in range(length)][:: 1 if forward else -1],
    st.sampled_from([0, 1, 40, TOP - 40, 7]),
    st.sampled_from([1, 1, 2, 2**32, 2**58]),
    st.sampled_from([0, 1, 3, 60, 300]),
    st.booleans(),
)
TWICE = RANGES.map(lambda keys: keys + keys[:2])
KEYS = st.one_of(RANGES, TWICE).map(pack)
BITS = st.sampled_from([1, 2, 4, 2**60, 2**200])


class PlacesMachine(RuleBasedStateMachine):
    """Blocks come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places()
        self.places.widen(256)
        self.masks: dict[int, int] = {}

    @rule(bit=BITS, keys=KEYS)
    def add(self, bit: int, keys: PackedKeys) -> None:
        assert self.places.add(bit, keys, PLENTY_BYTES) == 0
        for key in keys:
            self.masks[key] = self.masks.get(key, 0) | bit

    @rule(keys=KEYS)
    def add_each_to_a_set_of_its_own(self, keys: PackedKeys) -> None:
        for number, key in enumerate(keys[:100]):
            self.add(1 << number, pack([key]))

    @rule(bit=BITS, keys=KEYS)
    def remove(self, bit: int, keys: PackedKeys) -> None:
        self.places.remove(bit, keys)
        for key in keys:
            self._take(key, bit)

    @rule(bit=BITS, keys=KEYS)
    def renew(self, bit: int, keys: PackedKeys) -> None:
        assert self.places.renew(bit, keys, PLENTY_BYTES) == 0
        for key in list(self.masks):
            self._take(key, bit)
        for key in keys:
            self.masks[key] = self.masks.get(key, 0) | bit

    @rule(bits=st.sets(BITS))
    def clear(self, bits: set[int]) -> None:
        self.places.clear(sum(bits))
        for key in list(self.masks):
            self._take(key, sum(bits))

    def _take(self, key: int, bits: int) -> None:
        left = self.masks.pop(key, 0) & ~bits
        if left:
            self.masks[key] = left

    @rule(bit=BITS, keys=KEYS, limit=st.integers(0, 30_000))
    def add_what_fits(self, bit: int, keys: PackedKeys, limit: int) -> None:
        """What is refused is not there; what was there stays."""
        refused = self.places.add(bit, keys, limit)
        taken = [key for key in dict.fromkeys(keys) if self._is_in(key, bit)]
        assert refused <= len(keys) - len(taken)
        if any(not self.masks.get(key, 0) & bit for key in taken):
            assert self.places.bytes() <= limit
        for key in taken:
            self.masks[key] = self.masks.get(key, 0) | bit

    def _is_in(self, key: int, bit: int) -> bool:
        return any(run.mask & bit for run in self.places.runs(pack([key])))

    @rule(keys=KEYS, start=st.integers(0, 3))
    def ask(self, keys: PackedKeys, start: int) -> None:
        expected: list[Run] = []
        for block, key in enumerate(keys[start:], min(start, len(keys))):
            mask = self.masks.get(key, 0)
            if not mask:
                break
            if expected and expected[-1].mask == mask:
                expected.pop()
            expected.append(Run(mask, block + 1))
        assert self.places.runs(keys, min(start, len(keys))) == expected

    @invariant()
    def is_what_the_dict_is(self) -> None:
        self.places.check()
        assert len(self.places) == len(self.masks)
        assert self.places.held == sum(mask.bit_count() for mask in self.masks.values())
        self.ask(pack(self.masks), 0)


PlacesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestPlaces = PlacesMachine.TestCase
