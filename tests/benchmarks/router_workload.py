"""What both sides of the router benchmark index and ask for. Standard library only: the rival's environment reads it.

A sequence is 256 blocks of 16 tokens: a shared prefix of 64 blocks, one of 200, and 192 blocks of its own; each lies
on one worker, prefixes on many. Prompts are made of stored sequences; half of what is looked up diverges behind the
prefix.
"""

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK_TOKENS = 16
PREFIXES, PREFIX_BLOCKS, OWN_BLOCKS = 200, 64, 192
SEQUENCE_BLOCKS = PREFIX_BLOCKS + OWN_BLOCKS


@dataclass(frozen=True, slots=True)
class Blocks:
    """Consecutive blocks: their tokens, an engine's hashes for them, and hashes of each block's tokens alone."""

    tokens: "array[int]"
    hashes: list[int]
    local: list[int]

    def __add__(self, other: "Blocks") -> "Blocks":
        return Blocks(self.tokens + other.tokens, self.hashes + other.hashes, self.local + other.local)


@dataclass(frozen=True, slots=True)
class Stored:
    """One sequence on one worker."""

    worker: int
    blocks: Blocks


def fresh(rng: random.Random, blocks: int) -> Blocks:
    """Blocks that nobody has."""
    tokens = array("I", array("H", rng.randbytes(2 * blocks * BLOCK_TOKENS)))
    return Blocks(tokens, [rng.getrandbits(63) for _ in range(blocks)], [rng.getrandbits(63) for _ in range(blocks)])


def sequences(workers: int, blocks: int) -> list[Stored]:
    """Sequences of about `blocks` different blocks on so many workers; the same every time."""
    rng = random.Random(workers)
    prefixes = [fresh(rng, PREFIX_BLOCKS) for _ in range(PREFIXES)]
    count = max(workers, (blocks - PREFIXES * PREFIX_BLOCKS) // OWN_BLOCKS)
    return [Stored(rng.randrange(workers), rng.choice(prefixes) + fresh(rng, OWN_BLOCKS)) for _ in range(count)]


def prompts(stored: list[Stored], tokens: int, count: int, seed: int) -> Iterator[list[int]]:
    """Token ids of `count` prompts of so many tokens: a stored sequence, cut or continued."""
    rng = random.Random(seed)
    for _ in range(count):
        known = rng.choice(stored).blocks.tokens[:tokens]
        yield (known + fresh(rng, (tokens - len(known)) // BLOCK_TOKENS).tokens).tolist()


def lookups(stored: list[Stored], count: int, seed: int) -> Iterator[Blocks]:
    """Prompts of 256 blocks: every other one is stored in full, of the others only the prefix."""
    rng = random.Random(seed)
    for number in range(count):
        blocks = rng.choice(stored).blocks
        if number % 2:
            yield blocks
        else:
            prefix = Blocks(
                blocks.tokens[: PREFIX_BLOCKS * BLOCK_TOKENS],
                blocks.hashes[:PREFIX_BLOCKS],
                blocks.local[:PREFIX_BLOCKS],
            )
            yield prefix + fresh(rng, OWN_BLOCKS)
