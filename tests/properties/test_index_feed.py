"""Workers' streams into the index: it knows what lies there, or knows that it does not.

Each worker has the feed that a real one has (`cluster.dataplane.kv_feed`): snapshots in several frames, deltas, what
overflows replaced by a snapshot, and a new stream after each reconnect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.dataplane.frames import KV_TIERS, KvTier, encode, from_worker
from cluster.dataplane.kv_feed import KvFeed
from cluster.gateway.kv_index_feed import KvIndexFeed
from kvtransfer.framing import LENGTH_BYTES
from routing.block_keys import extend, root
from routing.index import Tier
from routing.index_blocks import BlockIndex
from tests.properties.index_model import IndexModel

NODES = {"a": "n", "b": "n", "c": "m"}
PROMPT = extend(root(None, None), list(range(8)), 1)
KEYS = st.lists(st.sampled_from(PROMPT), unique=True, max_size=5)

workers = st.sampled_from(sorted(NODES))
tiers = st.sampled_from(KV_TIERS)


@dataclass
class Worker:
    """What lies there; `feed` is None while it is away. `told` are the tiers whose snapshot has begun."""

    held: Mapping[KvTier, set[int]] = field(default_factory=lambda: {tier: set() for tier in KV_TIERS})
    feed: KvFeed | None = None
    told: set[KvTier] = field(default_factory=set)


class FeedMachine(RuleBasedStateMachine):
    """Blocks come and go, connections too, and the gateway reads when it gets to it."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BlockIndex()
        self.workers = {name: Worker() for name in NODES}

    @rule(name=workers, bound=st.integers(1, 6), frame=st.integers(1, 3))
    def connect(self, name: str, bound: int, frame: int) -> None:
        worker = self.workers[name]
        if worker.feed is None:
            worker.feed = KvFeed(lambda tier: sorted(worker.held[tier]), bound, frame)
            self.index.place(name, NODES[name])

    @rule(name=workers)
    def lose(self, name: str) -> None:
        self.workers[name].feed = None
        self.workers[name].told.clear()
        self.index.degrade(name)

    @rule(name=workers)
    def die(self, name: str) -> None:
        self.workers[name] = Worker()
        self.index.drop(name)

    @rule(name=workers, tier=tiers, keys=KEYS)
    def toggle(self, name: str, tier: KvTier, keys: list[int]) -> None:
        worker = self.workers[name]
        held = worker.held[tier]
        stored, removed = [key for key in keys if key not in held], [key for key in keys if key in held]
        held.symmetric_difference_update(keys)
        if worker.feed is not None:
            worker.feed.change(tier, stored, removed)

    @rule(name=workers)
    def read_one(self, name: str) -> None:
        self._read(name)

    def _read(self, name: str) -> bool:
        worker = self.workers[name]
        events = worker.feed.take() if worker.feed is not None else None
        if events is None:
            return False
        KvIndexFeed(self.index).kv_events(name, from_worker.decode(encode(events)[LENGTH_BYTES:]))
        if events.snapshot:
            worker.told.add(events.tier)
        return True

    @rule()
    def read_all(self) -> None:
        """Then the index knows the truth of every worker that is connected, and of no other."""
        for name in NODES:
            while self._read(name):
                pass
        truth = IndexModel()
        for name, worker in self.workers.items():
            if worker.feed is not None:
                truth.place(name, NODES[name])
                for tier, keys in worker.held.items():
                    truth.snapshot(name, Tier(tier), keys)
        assert self.index.longest_prefix(PROMPT, 0.0) == truth.longest_prefix(PROMPT, 0.0)

    @invariant()
    def is_sound(self) -> None:
        self.index.check()
        exact = sum("device" in worker.told for worker in self.workers.values())
        assert self.index.statistics().exact == exact


FeedMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFeed = FeedMachine.TestCase
