"""The optimum and the made-up conversations of the eviction benchmark."""

from itertools import product
from typing import get_args

import pytest

from cluster.planning.trace import Trace, TraceRequest
from kvtransfer.eviction.choice import PolicyName
from tests.benchmarks.eviction import served_hits
from tests.benchmarks.eviction_optimum import NEVER, next_uses, optimal_hits
from tests.benchmarks.eviction_prompts import made_up_conversations

A, B, C = ([bytes([name, i]) for i in range(3)] for name in range(3))


def brute_force(prompts: list[list[bytes]], capacity: int) -> int:
    """The most hits of any choice of what to keep: whole prefixes, which is all that counts."""
    best = {frozenset[bytes](): 0}
    for keys in prompts:
        after: dict[frozenset[bytes], int] = {}
        for kept, hits in best.items():
            found = next((i for i, key in enumerate(keys) if key not in kept), len(keys))
            there = sorted(kept | set(keys))
            for bits in product([False, True], repeat=len(there)):
                keep = frozenset(key for key, stays in zip(there, bits, strict=True) if stays)
                if len(keep) <= capacity:
                    after[keep] = max(after.get(keep, 0), hits + found)
        best = after
    return max(best.values())


@pytest.mark.parametrize("capacity", [1, 2, 3, 4])
def test_the_optimum_is_the_best_there_is(capacity: int) -> None:
    prompts = [A[:2], B[:1], A[:1], C[:2], A[:2], B[:1], C[:1], A[:1]]
    assert optimal_hits(prompts, capacity) == brute_force(prompts, capacity)


@pytest.mark.parametrize("name", get_args(PolicyName))
def test_no_policy_beats_the_optimum_and_all_find_everything_in_a_large_store(name: PolicyName) -> None:
    prompts = [A, B, [*A, b"more"], C, B, [*A, b"more", b"and more"], C, A] * 3
    for capacity in (2, 4, 6):
        assert served_hits(name, prompts, capacity) <= optimal_hits(prompts, capacity)
    assert served_hits(name, prompts, 100) == optimal_hits(prompts, 100)


def test_the_next_use_of_a_block_is_the_next_prompt_that_has_it() -> None:
    assert next_uses([A[:2], B[:1], A[:1]]) == [[2, NEVER], [NEVER], [NEVER]]


def test_a_prompt_continues_the_latest_one_that_it_can_continue_once() -> None:
    rows = [(0.0, 128, 64), (1.0, 128, 64), (10.0, 256, 10), (20.0, 256, 10), (30.0, 256, 10), (900.0, 330, 1)]
    first, second, third, fourth, fifth, last = made_up_conversations(
        Trace([TraceRequest(*row) for row in rows], block_size_tokens=64)
    )
    assert third[:2] == second
    assert fourth[:2] == first
    assert fifth[0] not in (*first, *second)
    assert last[0] not in (*first, *second, *third, *fourth, *fifth)
