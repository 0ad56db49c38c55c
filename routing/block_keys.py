"""Router keys: which prompts share which blocks, as 64-bit integers. Pure.

A block's key is xxh3_64 of its token ids (unsigned 32-bit, little-endian), seeded with the key of the block before it;
the first is seeded with `root`. So equal keys mean equal prefixes, under the same salt and LoRA. They guide routing
only: whether bytes match is decided by the engine's own hashes.

What else a block's contents depend on, e.g. an image behind placeholder tokens, is mixed in as extra bytes that follow
its tokens (`image_bytes`, at both ends of the wire). A block without them has the key of its text.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import iter_unpack
from types import MappingProxyType
from typing import Final

import xxhash

from routing.packed_keys import PackedKeys, pack

NO_EXTRAS: Final[Mapping[int, bytes]] = MappingProxyType({})


def root(salt: str | None, lora: str | None) -> int:
    """The seed of the first block. Absent and empty differ."""
    state = xxhash.xxh3_64()
    for part in (salt, lora):
        encoded = b"" if part is None else part.encode()
        state.update(b"-" if part is None else b"+" + len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.intdigest()


def extend(
    parent: int, token_ids: Sequence[int], block_size: int, extras: Mapping[int, bytes] = NO_EXTRAS
) -> list[int]:
    """The keys of the whole blocks of `token_ids`, which follow the block `parent` (or a `root`).

    `extras` are the extra bytes of those blocks that have some, counted from 0 here. The tokens of a last, partial
    block have no key.
    """
    data = _packed(token_ids, len(token_ids) // block_size * block_size)
    digest = xxhash.xxh3_64_intdigest
    blocks = iter_unpack(f"{4 * block_size}s", data)
    if not extras:
        return [parent := digest(block, parent) for (block,) in blocks]
    return [parent := digest(block + extras.get(i, b""), parent) for i, (block,) in enumerate(blocks)]


def _packed(token_ids: Sequence[int], count: int) -> "array[int]":
    if isinstance(token_ids, list):
        tokens = array("I")
        tokens.fromlist(token_ids if count == len(token_ids) else token_ids[:count])
    else:
        tokens = array("I", token_ids[:count])
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def image_bytes(images: Iterable[tuple[str, int]]) -> bytes:
    """The extra bytes of a block that images overlap: of each its identifier, and its start relative to the block.

    In prompt order. vLLM's `BlockStored` names them like this among the `extra_keys` of each block.
    """
    parts = [(identifier.encode(), start) for identifier, start in images]
    return b"".join(len(i).to_bytes(8, "little") + i + s.to_bytes(8, "little", signed=True) for i, s in parts)


@dataclass(frozen=True, slots=True)
class Image:
    """Something that is not text, behind `length_tokens` placeholders from token `offset_tokens` of the prompt on."""

    identifier: str
    offset_tokens: int
    length_tokens: int


class PromptKeys:
    """The keys of one prompt's whole blocks, computed once for each block size that is asked for."""

    __slots__ = ("_by_block_size", "_images", "_root", "_token_ids")

    def __init__(
        self,
        token_ids: Sequence[int],
        salt: str | None = None,
        lora: str | None = None,
        images: Sequence[Image] = (),
    ) -> None:
        self._token_ids = token_ids
        self._root = root(salt, lora)
        self._images = images
        self._by_block_size: dict[int, PackedKeys] = {}

    @classmethod
    def given(cls, block_size: int, keys: Sequence[int]) -> "PromptKeys":
        """Keys that are known already, at one block size; at any other there are none."""
        made = cls(())
        made._by_block_size[block_size] = pack(keys)
        return made

    def at(self, block_size: int) -> PackedKeys:
        """The keys for blocks of `block_size` tokens, in prompt order. Read only."""
        keys = self._by_block_size.get(block_size)
        if keys is None:
            extras = _extras(self._images, block_size) if self._images else NO_EXTRAS
            keys = pack(extend(self._root, self._token_ids, block_size, extras))
            self._by_block_size[block_size] = keys
        return keys


def _extras(images: Sequence[Image], block_size: int) -> Mapping[int, bytes]:
    """The extra bytes of the blocks that images overlap."""
    overlaps: dict[int, list[tuple[str, int]]] = {}
    for image in sorted(images, key=lambda image: image.offset_tokens):
        end = image.offset_tokens + image.length_tokens
        for block in range(image.offset_tokens // block_size, -(-end // block_size)):
            overlaps.setdefault(block, []).append((image.identifier, image.offset_tokens - block * block_size))
    return {block: image_bytes(found) for block, found in overlaps.items()}


NO_KEYS = PromptKeys(())
