"""Engine events and store changes to router keys."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.engines.engine import BlocksChanged
from cluster.workers.kv_events import MAX_IDLE_HASHES, KvBlocks, KvChanges, Prompt, idle_hashes
from cluster.workers.tier_keys import KvChange
from routing.block_keys import extend, root
from routing.index import Tier

BLOCK = 2
CLEARED = BlocksChanged("cleared")


def stored(*hashes: str, parent: str | None = None, tokens: list[int] | None = None, salt: str | None = None):
    token_ids = tokens if tokens is not None else [ord(h) for h in hashes for _ in range(BLOCK)]
    return BlocksChanged(
        "stored",
        [h.encode() for h in hashes],
        None if parent is None else parent.encode(),
        token_ids,
        cache_salt=salt,
    )


def removed(*hashes: str):
    return BlocksChanged("removed", [h.encode() for h in hashes])


def device_of(blocks: KvBlocks, *events: BlocksChanged) -> KvChange:
    return blocks.apply(events).device


def test_a_chain_gets_the_keys_a_gateway_computes_from_the_prompt() -> None:
    blocks = KvBlocks(BLOCK)
    first = device_of(blocks, stored("a", "b"))
    second = device_of(blocks, stored("c", parent="b"))
    keys = extend(root(None, None), [97, 97, 98, 98, 99, 99, 1], BLOCK)
    assert (first, second) == (KvChange(keys[:2]), KvChange(keys[2:]))
    assert list(blocks.snapshot(Tier.DEVICE)) == keys
    assert blocks.cached_tokens(Prompt([97, 97, 98, 98, 0, 0, 99, 99])) == 4
    assert blocks.cached_tokens(Prompt([97, 97], "salt")) == 0


def test_salted_prompts_share_no_key() -> None:
    blocks = KvBlocks(BLOCK)
    blocks.apply([stored("a"), stored("A", tokens=[97, 97], salt="s")])
    assert list(blocks.snapshot(Tier.DEVICE)) == (
        extend(root(None, None), [97, 97], BLOCK) + extend(root("s", None), [97, 97], BLOCK)
    )


def test_a_block_held_twice_is_gone_with_its_last_copy() -> None:
    blocks = KvBlocks(BLOCK)
    (key,) = device_of(blocks, stored("a")).stored
    assert not device_of(blocks, stored("a"))
    assert not device_of(blocks, removed("a"))
    assert device_of(blocks, removed("a")) == KvChange([], [key])


def test_two_hashes_with_one_key_hold_it_together() -> None:
    blocks = KvBlocks(BLOCK)
    (key,) = device_of(blocks, stored("a", tokens=[1, 1]), stored("b", tokens=[1, 1])).stored
    assert not device_of(blocks, removed("a"))
    assert device_of(blocks, removed("b")) == KvChange([], [key])


def test_what_comes_and_goes_within_one_batch_is_no_change() -> None:
    assert not device_of(KvBlocks(BLOCK), stored("a"), removed("a"))


def test_clearing_removes_everything_from_the_device() -> None:
    blocks = KvBlocks(BLOCK)
    keys = device_of(blocks, stored("a", "b")).stored
    assert device_of(blocks, CLEARED) == KvChange([], keys)
    assert list(blocks.snapshot(Tier.DEVICE)) == []


def test_what_cannot_be_placed_is_counted_and_not_guessed() -> None:
    blocks = KvBlocks(BLOCK)
    unknown_parent, not_whole = stored("b", parent="a"), stored("a", tokens=[97, 97, 97])
    image = BlocksChanged("stored", [b"x"], None, [1, 2], inexpressible=1)
    assert [len(device_of(blocks, event).stored) for event in (unknown_parent, not_whole, image)] == [0, 0, 1]
    assert blocks.unplaced_events == 3


def test_a_chain_goes_on_after_a_block_that_left_the_device() -> None:
    blocks = KvBlocks(BLOCK)
    blocks.apply([stored("a"), CLEARED])
    assert device_of(blocks, stored("b", parent="a")).stored == extend(root(None, None), [97, 97, 98, 98], BLOCK)[1:]


KEY_OF_A = extend(root(None, None), [97, 97], BLOCK)
NOTHING = KvChange()


ON_HOST = KvChanges(NOTHING, KvChange(KEY_OF_A), {b"a": KEY_OF_A[0]})


def test_a_commit_is_understood_whether_it_comes_before_between_or_after_the_engines_events() -> None:
    before, between, after = KvBlocks(BLOCK), KvBlocks(BLOCK), KvBlocks(BLOCK)
    assert before.follow(False, {b"a": None}, []) == KvChanges(NOTHING, NOTHING)
    assert before.apply([stored("a")]) == replace(ON_HOST, device=KvChange(KEY_OF_A))
    between.apply([stored("a")])
    assert between.follow(False, {b"a": None}, []) == ON_HOST
    after.apply([stored("a"), removed("a")])
    assert after.follow(False, {b"a": None}, []) == ON_HOST


def test_a_block_evicted_from_the_device_stays_known_on_the_host() -> None:
    blocks = KvBlocks(BLOCK)
    blocks.apply([stored("a")])
    blocks.follow(True, {b"a": None}, [])
    assert blocks.apply([removed("a")]) == KvChanges(KvChange([], KEY_OF_A), NOTHING)
    assert list(blocks.snapshot(Tier.HOST)) == KEY_OF_A
    assert blocks.cached_tokens(Prompt([97, 97, 98])) == 2


def test_what_may_not_be_loaded_counts_only_where_the_device_has_it() -> None:
    blocks = KvBlocks(BLOCK)
    blocks.apply([stored("a", "b", "c")])
    blocks.follow(True, {b"a": None, b"b": None, b"c": None}, [])
    blocks.apply([removed("b", "c")])
    prompt = Prompt([97, 97, 98, 98, 99, 99, 1])
    assert [blocks.cached_tokens(prompt, limit) for limit in (None, 5, 4, 3, 0)] == [6, 4, 4, 2, 2]


def test_a_lost_store_holds_nothing_and_its_successor_is_understood() -> None:
    blocks = KvBlocks(BLOCK)
    blocks.apply([stored("a"), removed("a")])
    blocks.follow(True, {b"a": None}, [])
    assert blocks.follow(True, {}, []) == KvChanges(NOTHING, KvChange([], KEY_OF_A))
    assert blocks.follow(True, {b"a": None}, []) == ON_HOST


def test_a_block_that_came_back_to_the_store_without_its_label_gets_it_again() -> None:
    blocks = KvBlocks(BLOCK)
    blocks.apply([stored("a")])
    blocks.follow(True, {b"a": None}, [])
    assert blocks.follow(False, {b"a": None}, []) == KvChanges(NOTHING, NOTHING, {b"a": KEY_OF_A[0]})


def test_a_label_tells_the_key_of_a_block_that_was_never_on_this_device() -> None:
    blocks = KvBlocks(BLOCK)
    assert blocks.follow(True, {b"a": KEY_OF_A[0]}, []) == KvChanges(NOTHING, KvChange(KEY_OF_A))
    assert device_of(blocks, stored("b", parent="a")).stored == extend(root(None, None), [97, 97, 98, 98], BLOCK)[1:]
    blocks.check()


def test_of_what_left_both_tiers_only_the_last_is_remembered() -> None:
    blocks = KvBlocks(BLOCK, max_idle_hashes=1)
    blocks.apply([stored("a", "b"), removed("b"), removed("a")])
    blocks.check()
    assert blocks.follow(False, dict.fromkeys([b"a", b"b"]), []).host == KvChange(KEY_OF_A)


@pytest.mark.parametrize(
    ("device_blocks", "remembered"), [(1, 1), (3, 3), (10**9, MAX_IDLE_HASHES), (0, MAX_IDLE_HASHES)]
)
def test_no_more_is_remembered_than_could_leave_the_device_at_once(device_blocks: int, remembered: int) -> None:
    assert idle_hashes(device_blocks) == remembered


HASHES = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
SOME = st.lists(HASHES, max_size=3, unique=True)


class BlocksAgainstSets(RuleBasedStateMachine):
    """Copies on the device and hashes in the store, as plain as can be; a hash is a chain of its own letters."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = KvBlocks(BLOCK, max_idle_hashes=100)
        self.copies: Counter[bytes] = Counter()
        self.store: set[bytes] = set()
        self.heard: set[bytes] = set()
        self.known: dict[Tier, set[int]] = {tier: set() for tier in Tier}

    def learn(self, changes: KvChanges) -> None:
        for tier, change in ((Tier.DEVICE, changes.device), (Tier.HOST, changes.host)):
            assert not self.known[tier] & set(change.stored)
            assert self.known[tier] >= set(change.removed)
            self.known[tier] = (self.known[tier] | set(change.stored)) - set(change.removed)
        assert all(key == key_of(block_hash) for block_hash, key in changes.labels.items())

    @rule(hashes=SOME)
    def store_on_device(self, hashes: list[bytes]) -> None:
        self.learn(self.blocks.apply([stored(h.decode(), tokens=[h[0] % 3] * BLOCK) for h in hashes]))
        self.copies.update(hashes)
        self.heard.update(hashes)

    @rule(hashes=SOME)
    def remove_from_device(self, hashes: list[bytes]) -> None:
        self.learn(self.blocks.apply([removed(h.decode()) for h in hashes]))
        self.copies = +(self.copies - Counter(hashes))

    @rule()
    def clear_device(self) -> None:
        self.learn(self.blocks.apply([CLEARED]))
        self.copies.clear()

    @rule(committed=SOME, labelled=st.booleans(), gone=SOME, snapshot=st.booleans())
    def follow(self, committed: list[bytes], labelled: bool, gone: list[bytes], snapshot: bool) -> None:
        held = set() if snapshot else self.store
        if labelled:
            self.heard |= set(committed) - held
        labels = {h: key_of(h) if labelled else None for h in committed}
        self.learn(self.blocks.follow(snapshot, labels, gone))
        self.store = (held | set(committed)) - set(gone)

    @invariant()
    def agrees(self) -> None:
        self.blocks.check()
        assert self.known == {
            Tier.DEVICE: {key_of(h) for h in self.copies},
            Tier.HOST: {key_of(h) for h in self.store & self.heard},
        }
        assert {tier: set(self.blocks.snapshot(tier)) for tier in Tier} == self.known


def key_of(block_hash: bytes) -> int:
    """Of a first block; some share a key."""
    (key,) = extend(root(None, None), [block_hash[0] % 3] * BLOCK, BLOCK)
    return key


TestBlocksAgainstSets = BlocksAgainstSets.TestCase
TestBlocksAgainstSets.settings = settings(stateful_step_count=30, max_examples=60)
