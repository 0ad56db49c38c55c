"""The index when its budget is reached: it claims no more than is true, refuses what it says, and uses room again."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from routing.block_keys import extend, root
from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.index_entries import ENTRY_BYTES
from tests.properties.index_model import IndexModel, ModelPromise

REPLICAS = ["a", "b", "c"]
PROMPT = extend(root(None, None), list(range(40)), 1)
EMPTY_BYTES = 64 * ENTRY_BYTES + 64
"""What an index keeps that had something."""

PARTS = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda cut: PROMPT[min(cut) : max(cut)])

replicas = st.sampled_from(REPLICAS)
tiers = st.sampled_from(list(Tier))


class BudgetMachine(RuleBasedStateMachine):
    """As in `test_index`, with room for a part only."""

    @initialize(budget=st.integers(0, 8_000))
    def begin(self, budget: int) -> None:
        self.budget = budget
        self.index = BlockIndex(budget)
        self.model = IndexModel()
        for replica in REPLICAS:
            self.index.place(replica, "n")
            self.model.place(replica, "n")
            self.snapshot(replica, Tier.DEVICE, [])

    @rule(replica=replicas, tier=tiers, keys=PARTS)
    def snapshot(self, replica: str, tier: Tier, keys: list[int]) -> None:
        self.index.snapshot(replica, tier, keys)
        self.model.snapshot(replica, tier, keys)

    @rule(replica=replicas, tier=tiers, keys=PARTS)
    def store(self, replica: str, tier: Tier, keys: list[int]) -> None:
        """What is not taken in is refused, and what was in before stays."""
        before = self.index.statistics()
        known = self.index.longest_prefix(PROMPT, 0.0)
        self.index.apply(replica, tier, keys, [])
        self.model.apply(replica, tier, keys, [])
        after = self.index.statistics()
        assert 0 <= after.places - before.places <= len(keys)
        if after.refused == before.refused and before.refused == 0:
            assert self.index.longest_prefix(PROMPT, 0.0) == self.model.longest_prefix(PROMPT, 0.0)
        if after.places > before.places:
            assert after.bytes <= self.budget, "taken in beyond the budget"
        assert (
            self.index.longest_prefix(PROMPT, 0.0).device.items()
            >= {name: depth for name, depth in known.device.items() if name != replica}.items()
        )

    @rule(replica=replicas, tier=tiers, keys=PARTS)
    def remove(self, replica: str, tier: Tier, keys: list[int]) -> None:
        self.index.apply(replica, tier, [], keys)
        self.model.apply(replica, tier, [], keys)

    @rule(replica=replicas, end=st.integers(1, 40))
    def promise(self, replica: str, end: int) -> None:
        before = self.index.statistics()
        number = self.index.promise(replica, PROMPT[:end], 1.0)
        self.model.promise(number, ModelPromise(replica, PROMPT[:end], 1.0))
        after = self.index.statistics()
        assert after.promised == before.promised + (after.refused - before.refused < end)
        assert after.bytes <= max(self.budget, before.bytes)

    @rule()
    def empty(self) -> None:
        """Afterwards there is room for all that one place can have, if there ever was."""
        for replica in REPLICAS:
            for tier in Tier:
                self.snapshot(replica, tier, [])
        self.index.longest_prefix(PROMPT, 1.0)
        self.model.promises.clear()
        statistics = self.index.statistics()
        assert (statistics.keys, statistics.places, statistics.promised) == (0, 0, 0)
        assert statistics.bytes <= EMPTY_BYTES

    @invariant()
    def claims_no_more_than_is_true(self) -> None:
        self.index.check()
        claimed, true = self.index.longest_prefix(PROMPT, 0.0), self.model.longest_prefix(PROMPT, 0.0)
        for field in ("device", "host", "promised", "stores"):
            for name, depth in getattr(claimed, field).items():
                assert depth <= getattr(true, field).get(name, 0), field


BudgetMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBudget = BudgetMachine.TestCase
