"""Router keys of blocks."""

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from routing.block_keys import extend, root

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def test_the_formula() -> None:
    parent = root(None, None)
    first = xxhash.xxh3_64_intdigest(b"\x01\0\0\0\x02\0\0\0", parent)
    assert extend(parent, [1, 2, 3, 4, 5], 2) == [
        first,
        xxhash.xxh3_64_intdigest(b"\x03\0\0\0\x04\0\0\0", first),
    ]


@given(TOKENS, TOKENS, st.integers(1, 8))
def test_a_chain_can_be_continued_at_any_block(head: list[int], tail: list[int], block_size: int) -> None:
    head = head[: len(head) // block_size * block_size]
    start = root("salt", None)
    keys = extend(start, head, block_size)
    assert keys + extend(keys[-1] if keys else start, tail, block_size) == extend(start, head + tail, block_size)


def test_salt_and_lora_are_told_apart() -> None:
    pairs = [(None, None), ("", None), (None, ""), ("a", None), (None, "a"), ("a", "b"), ("ab", ""), ("", "ab")]
    assert len({root(*pair) for pair in pairs}) == len(pairs)
