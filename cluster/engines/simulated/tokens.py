"""What a block holds and which token follows: the whole "model", pure.

A block's digest is its checksum. The bytes of a block follow from the digest of the previous block's bytes and the
block's own tokens. The next token follows from the digests of all whole blocks, in order, and the tokens of the last,
partial one. So a token depends on every earlier token, and it depends on them through the KV bytes: a wrong block
gives wrong tokens.

`reference_tokens` computes the same with no engine, block table or store.
"""

import hashlib
from array import array
from collections.abc import Callable, Collection, Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from cluster.engines.simulated.sampling import Sampling
from kvtransfer.checksum import block_checksum

KvBytes = NDArray[np.uint8]
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: spreads the ramp


def root_hash(cache_salt: str | None, lora_name: str | None) -> bytes:
    """The parent of a prompt's first block: 32 bytes that keep salted and adapted prompts apart."""
    return hashlib.sha256(repr(("baton simulated", cache_salt, lora_name)).encode()).digest()


def block_hash(parent: bytes, tokens: bytes) -> bytes:
    """A block's content address: 32 bytes. `tokens` are unsigned 32-bit integers."""
    return hashlib.sha256(parent + tokens).digest()


def origin(lora_name: str | None) -> int:
    """Stands for the digest of the block before a prompt's first."""
    return xxhash.xxh3_64_intdigest((lora_name or "").encode())


class BlockFiller:
    """Computes blocks of `block_bytes` bytes."""

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self._ramp = np.arange(1, block_bytes // 8 + 2, dtype=np.uint64) * np.uint64(_ODD)

    def fill(self, out: KvBytes, previous: int, tokens: bytes) -> None:
        """Write the block that follows a block of digest `previous` and holds `tokens`."""
        state = xxhash.xxh3_128_intdigest(previous.to_bytes(8, "little") + tokens)
        words = self._ramp * np.uint64(state & _MASK | 1)
        words ^= np.uint64(state >> 64)
        out[:] = words.view(np.uint8)[: self.block_bytes]


def fold(digests: bytes, tail: bytes, position: int) -> int:
    """What the model "sees" at a position: `digests` of the whole blocks and `tail`, the tokens after them."""
    return xxhash.xxh3_64_intdigest(digests + tail, seed=position)


def draw(state: int, sampling: Sampling, output: int, random_bits: Callable[[int], int]) -> int:
    """Turn a fold into the number that picks the token: itself, moved by the seed, or by chance."""
    if sampling.greedy:
        return state
    seed = random_bits(64) if sampling.seed is None else sampling.seed + output
    return xxhash.xxh3_64_intdigest(state.to_bytes(8, "little"), seed=seed & _MASK)


def pick(candidates: Sequence[int], number: int, forbidden: Collection[int]) -> int:
    """The candidate a number stands for; the next one that is not `forbidden` while some are."""
    start = number % len(candidates)
    if not forbidden:
        return candidates[start]
    order = (candidates[(start + step) % len(candidates)] for step in range(len(candidates)))
    return next((token for token in order if token not in forbidden), candidates[start])


def reference_tokens(
    prompt: Sequence[int],
    sampling: Sampling,
    count: int,
    filler: BlockFiller,
    candidates: Sequence[int],
    block_size: int,
) -> list[int]:
    """The `count` tokens that follow a prompt, for greedy or seeded sampling and no LoRA; stop conditions aside."""
    tokens = array("I", prompt)
    digests = bytearray()
    previous, block = origin(None), np.empty(filler.block_bytes, np.uint8)
    for _ in range(count):
        while (whole := len(digests) // 8) < len(tokens) // block_size:
            filler.fill(block, previous, tokens[whole * block_size : (whole + 1) * block_size].tobytes())
            previous = block_checksum(block)
            digests += previous.to_bytes(8, "little")
        tail = tokens[len(tokens) // block_size * block_size :].tobytes()
        number = draw(fold(bytes(digests), tail, len(tokens)), sampling, 0, _no_chance)
        made = len(tokens) - len(prompt)
        tokens.append(pick(candidates, number, sampling.stop_tokens if made < sampling.min_tokens else ()))
    return list(tokens[len(prompt) :])


def _no_chance(bits: int) -> int:
    raise ValueError("without a seed, only greedy sampling has a reference")
