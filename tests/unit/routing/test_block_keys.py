"""Router keys of blocks."""

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from routing.block_keys import Image, PromptKeys, extend, image_bytes, root

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


def test_an_image_changes_the_keys_from_its_first_block_on() -> None:
    tokens = [7] * 40
    text = PromptKeys(tokens).at(4)
    cat = PromptKeys(tokens, images=[Image("cat", 9, 8)]).at(4)
    assert [a == b for a, b in zip(text, cat, strict=True)] == [True, True] + [False] * 8
    assert cat != PromptKeys(tokens, images=[Image("dog", 9, 8)]).at(4)
    assert cat != PromptKeys(tokens, images=[Image("cat", 10, 8)]).at(4)
    assert cat == PromptKeys(tokens, images=[Image("cat", 9, 8)]).at(4)


def test_a_worker_that_is_told_of_the_images_in_a_block_finds_the_same_key() -> None:
    """As vLLM tells them with each block: identifier, and start relative to the block."""
    tokens = list(range(20))
    keys = PromptKeys(tokens, images=[Image("dog", 9, 3), Image("cat", 5, 4)]).at(4)
    extras = {0: image_bytes([("cat", 1)]), 1: image_bytes([("cat", -3), ("dog", 1)])}
    assert extend(keys[0], tokens[4:12], 4, extras) == keys[1:3].tolist()
    assert extend(keys[2], tokens[12:], 4) == keys[3:].tolist()


def test_images_are_told_apart_by_their_bounds() -> None:
    assert len({image_bytes([("ab", 0)]), image_bytes([("a", 0), ("b", 0)]), image_bytes([("b", 0), ("a", 0)])}) == 3
