"""Router keys: which prompts share which blocks, as 64-bit integers. Pure.

A block's key is xxh3_64 of its token ids (unsigned 32-bit, little-endian), seeded with the key of the block before it;
the first is seeded with `root`. So equal keys mean equal prefixes, under the same salt and LoRA. They guide routing
only: whether bytes match is decided by the engine's own hashes.
"""

import sys
from array import array
from collections.abc import Sequence

import xxhash


def root(salt: str | None, lora: str | None) -> int:
    """The seed of the first block. Absent and empty differ."""
    state = xxhash.xxh3_64()
    for part in (salt, lora):
        encoded = b"" if part is None else part.encode()
        state.update(b"-" if part is None else b"+" + len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.intdigest()


def extend(parent: int, token_ids: Sequence[int], block_size: int) -> list[int]:
    """The keys of the whole blocks of `token_ids`, which follow the block `parent` (or a `root`).

    The tokens of a last, partial block have no key.
    """
    tokens = array("I", token_ids)
    if sys.byteorder == "big":
        tokens.byteswap()
    view = memoryview(tokens).cast("B")
    block_bytes = block_size * tokens.itemsize
    keys: list[int] = []
    for start in range(0, len(view) - block_bytes + 1, block_bytes):
        parent = xxhash.xxh3_64_intdigest(view[start : start + block_bytes], parent)
        keys.append(parent)
    return keys


class PromptKeys:
    """The keys of one prompt's whole blocks, computed once for each block size that is asked for."""

    __slots__ = ("_by_block_size", "_root", "_token_ids")

    def __init__(self, token_ids: Sequence[int], salt: str | None = None, lora: str | None = None) -> None:
        self._token_ids = token_ids
        self._root = root(salt, lora)
        self._by_block_size: dict[int, Sequence[int]] = {}

    @classmethod
    def given(cls, block_size: int, keys: Sequence[int]) -> "PromptKeys":
        """Keys that are known already, at one block size; at any other there are none."""
        made = cls(())
        made._by_block_size[block_size] = keys
        return made

    def at(self, block_size: int) -> Sequence[int]:
        """The keys for blocks of `block_size` tokens, in prompt order."""
        keys = self._by_block_size.get(block_size)
        if keys is None:
            keys = self._by_block_size[block_size] = extend(self._root, self._token_ids, block_size)
        return keys


NO_KEYS = PromptKeys(())
