"""Belady's optimum for prompts that share prefixes, with the choice not to keep a block at all."""

import heapq
from collections.abc import Sequence

NEVER = 1 << 62


def optimal_hits(prompts: Sequence[Sequence[bytes]], capacity: int) -> int:
    """Blocks found by all prompts in a store of `capacity` blocks that knows the future."""
    kept: dict[bytes, tuple[int, int]] = {}
    latest: list[tuple[int, int, bytes]] = []  # by next use, the latest first; may name what has gone or moved
    hits = 0
    for keys, uses in zip(prompts, next_uses(prompts), strict=True):
        hits += next((i for i, key in enumerate(keys) if key not in kept), len(keys))
        for position, (key, use) in enumerate(zip(keys, uses, strict=True)):
            if use == NEVER:
                kept.pop(key, None)
            else:
                kept[key] = (-use, -position)
                heapq.heappush(latest, (-use, -position, key))
        while len(kept) > capacity:
            *rank, key = heapq.heappop(latest)
            if kept.get(key) == tuple(rank):
                del kept[key]
    return hits


def next_uses(prompts: Sequence[Sequence[bytes]]) -> list[list[int]]:
    """For each block of each prompt the number of the prompt that uses it next, or NEVER."""
    following: dict[bytes, int] = {}
    uses: list[list[int]] = []
    for number in range(len(prompts) - 1, -1, -1):
        uses.append([following.get(key, NEVER) for key in prompts[number]])
        following.update(dict.fromkeys(prompts[number], number))
    return uses[::-1]
