"""Holdings against a list of pins with the times they were taken."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvtransfer.holdings import Holdings

keys = st.sampled_from([b"a", b"b", b"c"])
handoffs = st.sampled_from(["h", "i"])
slots = st.integers(0, 4)


class HoldingsAgainstLists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.holdings = Holdings("owner")
        self.now = 0.0
        self.single: list[tuple[bytes, int, float]] = []
        self.gathered: dict[str, tuple[list[int], float | None]] = {}

    @rule(passed_s=st.floats(0, 10))
    def wait(self, passed_s: float) -> None:
        self.now += passed_s

    @rule(pins=st.lists(st.tuples(keys, slots), max_size=3), more=st.lists(keys, max_size=2))
    def add(self, pins: list[tuple[bytes, int]], more: list[bytes]) -> None:
        """What comes after the last slot is not pinned."""
        self.holdings.add([*(key for key, _ in pins), *more], [slot for _, slot in pins], self.now)
        self.single += [(key, slot, self.now) for key, slot in pins]

    @rule(wanted=st.lists(keys, max_size=3))
    def take(self, wanted: list[bytes]) -> None:
        taken = []
        for key in wanted:
            pin = next((pin for pin in self.single if pin[0] == key), None)
            if pin is not None:
                self.single.remove(pin)
                taken.append(pin[1])
        assert self.holdings.take(wanted) == taken

    @rule(handoff=handoffs, more=st.lists(slots, max_size=3))
    def gather(self, handoff: str, more: list[int]) -> None:
        self.holdings.gather(handoff, more, self.now)
        slots, since = self.gathered.get(handoff, ([], None))
        self.gathered[handoff] = (slots + more, self.now if more and since is None else since)

    @rule(handoff=handoffs)
    def release(self, handoff: str) -> None:
        held = self.gathered.pop(handoff, None)
        assert self.holdings.release(handoff) == (None if held is None else held[0])

    @invariant()
    def agrees(self) -> None:
        self.holdings.check()
        expected = [slot for _, slot, _ in self.single] + [slot for held, _ in self.gathered.values() for slot in held]
        assert sorted(self.holdings.slots()) == sorted(expected)
        times = [since for _, _, since in self.single]
        times += [since for _, since in self.gathered.values() if since is not None]
        assert self.holdings.oldest_s == min(times, default=None)


HoldingsAgainstLists.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestHoldings = HoldingsAgainstLists.TestCase
