"""The index against a naive model: sets of keys for each replica and tier, asked anew for every question."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from routing.block_keys import extend, root
from routing.index import Tier
from routing.index_blocks import BlockIndex
from tests.properties.index_model import IndexModel, ModelPromise

REPLICAS = ["a", "b", "c", "d"]
NODES = ["n", "m"]
START = root(None, None)

# Prompts over two tokens, in blocks of one: they share prefixes of every length. Long ones pass the chunks' sizes.
LONG = extend(START, [0, 1] * 30, 1)
PROMPTS = st.one_of(
    st.lists(st.integers(0, 1), max_size=6).map(lambda tokens: extend(START, tokens, 1)),
    st.integers(0, len(LONG)).map(lambda n: LONG[:n]),
)
SLICES = st.tuples(PROMPTS, st.integers(0, 60), st.integers(0, 60)).map(lambda cut: cut[0][cut[1] :][: cut[2]])
SINGLES = st.lists(st.sampled_from(LONG), max_size=2)
ANY = st.lists(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), max_size=5)  # keys are any 64 bits
KEYS = st.one_of(PROMPTS, SLICES, SINGLES, ANY)

replicas = st.sampled_from(REPLICAS)
tiers = st.sampled_from(list(Tier))


class IndexMachine(RuleBasedStateMachine):
    """Snapshots, deltas, reconnects, deaths and promises in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BlockIndex()
        self.model = IndexModel()
        self.numbers: list[int] = []
        self.now = 0.0

    @rule(replica=replicas, node=st.sampled_from(NODES))
    def place(self, replica: str, node: str) -> None:
        self.index.place(replica, node)
        self.model.place(replica, node)

    @rule(replica=replicas, tier=tiers, keys=KEYS)
    def snapshot(self, replica: str, tier: Tier, keys: list[int]) -> None:
        self.index.snapshot(replica, tier, iter(keys))
        self.model.snapshot(replica, tier, keys)

    @rule(replica=replicas, tier=tiers, stored=KEYS, removed=KEYS)
    def apply(self, replica: str, tier: Tier, stored: list[int], removed: list[int]) -> None:
        self.index.apply(replica, tier, iter(stored), iter(removed))
        self.model.apply(replica, tier, stored, removed)

    @rule(replica=replicas, tier=tiers, stored=KEYS)
    def store(self, replica: str, tier: Tier, stored: list[int]) -> None:
        self.apply(replica, tier, stored, [])

    @rule(replica=replicas)
    def degrade(self, replica: str) -> None:
        self.index.degrade(replica)
        self.model.degrade(replica)

    @rule(replica=replicas)
    def drop(self, replica: str) -> None:
        self.index.drop(replica)
        self.model.drop(replica)

    @rule(replica=replicas, keys=PROMPTS, duration=st.integers(1, 3))
    def promise(self, replica: str, keys: list[int], duration: int) -> None:
        number = self.index.promise(replica, keys, self.now + duration)
        assert number not in self.numbers
        self.numbers.append(number)
        if keys:
            self.model.promise(number, ModelPromise(replica, keys, self.now + duration))

    @precondition(lambda self: self.numbers)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        """Also those that ended already."""
        number = data.draw(st.sampled_from(self.numbers))
        self.index.retract(number)
        self.model.promises.pop(number, None)

    @rule()
    def wait(self) -> None:
        self.now += 1

    @rule(keys=st.one_of(PROMPTS, ANY))
    def ask(self, keys: list[int]) -> None:
        assert self.index.longest_prefix(keys, self.now) == self.model.longest_prefix(keys, self.now)

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.index.check()
        self.ask(LONG)
        statistics = self.index.statistics()
        held = [keys for replica in self.model.replicas.values() for keys in replica.tiers.values()]
        assert statistics.keys == len(set().union(*held))
        assert statistics.places == sum(map(len, held))
        exact = sum(Tier.DEVICE in replica.tiers for replica in self.model.replicas.values())
        assert (statistics.exact, statistics.degraded) == (exact, len(self.model.replicas) - exact)
        assert statistics.promised == len(self.model.promises)
        assert statistics.refused == 0


IndexMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestIndex = IndexMachine.TestCase
