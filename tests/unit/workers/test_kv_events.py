"""Engine events to router keys."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.engines.engine import BlocksChanged
from cluster.workers.kv_events import DeviceBlocks, KvChange
from routing.block_keys import extend, root

BLOCK = 2


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


def test_a_chain_gets_the_keys_a_gateway_computes_from_the_prompt() -> None:
    blocks = DeviceBlocks(BLOCK)
    first = blocks.apply([stored("a", "b")])
    second = blocks.apply([stored("c", parent="b")])
    keys = extend(root(None, None), [97, 97, 98, 98, 99, 99, 1], BLOCK)
    assert (first, second) == (KvChange(keys[:2]), KvChange(keys[2:]))
    assert blocks.snapshot() == keys


def test_salted_prompts_share_no_key() -> None:
    blocks = DeviceBlocks(BLOCK)
    blocks.apply([stored("a"), stored("A", tokens=[97, 97], salt="s")])
    assert blocks.snapshot() == extend(root(None, None), [97, 97], BLOCK) + extend(root("s", None), [97, 97], BLOCK)


def test_a_block_held_twice_is_gone_with_its_last_copy() -> None:
    blocks = DeviceBlocks(BLOCK)
    (key,) = blocks.apply([stored("a")]).stored
    assert not blocks.apply([stored("a")])
    assert not blocks.apply([removed("a")])
    assert blocks.apply([removed("a")]) == KvChange([], [key])


def test_two_hashes_with_one_key_hold_it_together() -> None:
    blocks = DeviceBlocks(BLOCK)
    (key,) = blocks.apply([stored("a", tokens=[1, 1]), stored("b", tokens=[1, 1])]).stored
    assert not blocks.apply([removed("a")])
    assert blocks.apply([removed("b")]) == KvChange([], [key])


def test_what_comes_and_goes_within_one_batch_is_no_change() -> None:
    blocks = DeviceBlocks(BLOCK)
    assert not blocks.apply([stored("a"), removed("a")])


def test_clearing_removes_everything() -> None:
    blocks = DeviceBlocks(BLOCK)
    keys = blocks.apply([stored("a", "b")]).stored
    assert blocks.apply([BlocksChanged("cleared")]) == KvChange([], keys)
    assert (len(blocks), blocks.snapshot()) == (0, [])


def test_a_block_after_an_unknown_one_is_not_guessed() -> None:
    blocks = DeviceBlocks(BLOCK)
    assert not blocks.apply([stored("b", parent="a")])
    assert (len(blocks), blocks.unknown_parents) == (0, 1)


NAMES = st.sampled_from("abcd")
EVENTS = st.lists(
    st.one_of(
        st.builds(lambda n: stored(n), NAMES),
        st.builds(lambda n, p: stored(n, parent=p), NAMES, NAMES),
        st.builds(lambda n: removed(n), NAMES),
        st.just(BlocksChanged("cleared")),
    ),
    max_size=5,
)


@given(st.lists(EVENTS, max_size=20))
def test_changes_add_up_to_the_snapshot(batches) -> None:
    blocks, known = DeviceBlocks(BLOCK), set()
    for events in batches:
        change = blocks.apply(events)
        assert not known & set(change.stored)
        assert known >= set(change.removed)
        known = (known | set(change.stored)) - set(change.removed)
        assert known == set(blocks.snapshot())
        blocks.check()
