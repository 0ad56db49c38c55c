"""The index on examples, and what it costs."""

import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest

from routing.block_keys import PromptKeys
from routing.index import Prefixes, Tier
from routing.index_blocks import BlockIndex

PROMPT = PromptKeys(list(range(100))).at(10)


def fleet(*replicas: str, budget_bytes: int = 2**30) -> BlockIndex:
    """EXACT replicas named by node and number, e.g. `n1`, with nothing on them."""
    index = BlockIndex(budget_bytes)
    for replica in replicas:
        index.place(replica, replica[0])
        index.snapshot(replica, Tier.DEVICE, [])
        index.snapshot(replica, Tier.HOST, [])
    return index


def test_what_a_device_lacks_may_lie_in_its_node_or_be_on_its_way() -> None:
    index = fleet("n1", "n2", "m1")
    index.apply("n1", Tier.DEVICE, [*PROMPT[:2], *PROMPT[3:5]], [])
    index.apply("n2", Tier.HOST, PROMPT[1:3], [])
    index.apply("m1", Tier.HOST, PROMPT[:1], [])
    index.promise("n1", PROMPT[:3], until=1.0)
    assert index.longest_prefix(PROMPT, now=0.0) == Prefixes(
        device={"n1": 2}, host={"n1": 5, "m1": 1}, promised={"n1": 5}, coming={"n1": 5}, stores={"m": 1}
    )
    assert index.longest_prefix(PROMPT, now=1.0).promised == {"n1": 2}


def test_a_hole_anywhere_in_a_long_prompt_is_seen() -> None:
    keys = PromptKeys(list(range(700))).at(1)
    for hole in (0, 1, 255, 256, 257, 511, 512, 698, 699):
        index = fleet("n1", "n2")
        index.apply("n1", Tier.DEVICE, keys, [])
        index.apply("n2", Tier.DEVICE, keys, [])
        index.apply("n1", Tier.DEVICE, [], [keys[hole]])
        assert index.longest_prefix(keys, 0.0).device == ({"n1": hole, "n2": 700} if hole else {"n2": 700})
        index.check()


def test_equal_promises_add_up_and_go_one_by_one() -> None:
    index = fleet("n1")
    first, second = (index.promise("n1", PROMPT, until=9.0) for _ in range(2))
    index.retract(first)
    index.retract(first)
    assert index.longest_prefix(PROMPT, 0.0).promised == {"n1": 10}
    index.retract(second)
    assert index.longest_prefix(PROMPT, 0.0).promised == {}


def test_a_degraded_replica_keeps_its_promises_and_earns_nothing_by_them() -> None:
    index = fleet("n1")
    index.promise("n1", PROMPT, until=9.0)
    index.degrade("n1")
    assert index.longest_prefix(PROMPT, 0.0) == Prefixes({}, {}, {}, {}, {})
    index.snapshot("n1", Tier.DEVICE, [])
    assert index.longest_prefix(PROMPT, 0.0).promised == {"n1": 10}


def test_a_replica_that_is_gone_is_promised_nothing() -> None:
    index = fleet("n1")
    index.drop("n1")
    index.retract(index.promise("n1", PROMPT, until=9.0))
    assert index.statistics().promised == index.statistics().refused == 0
    index.check()


def test_a_key_of_more_than_64_bits_changes_nothing() -> None:
    index = fleet("n1")
    with pytest.raises(OverflowError):
        index.apply("n1", Tier.DEVICE, [1, 2, 2**64], [])
    assert index.statistics().keys == 0
    index.check()


def test_times_of_promises_that_were_taken_back_do_not_pile_up() -> None:
    index = fleet("n1")
    for _ in range(1_000):
        index.retract(index.promise("n1", PROMPT, until=1e9))
    index.check()


def in_prompts(index: BlockIndex, replicas: list[str], rng: random.Random) -> None:
    """Prompts of 100 blocks, every other one on two devices."""
    for number in range(300):
        keys = [rng.getrandbits(64) for _ in range(100)]
        for replica in rng.sample(replicas, 1 + number % 2):
            index.apply(replica, Tier.DEVICE, keys, [])


def one_by_one(index: BlockIndex, replicas: list[str], rng: random.Random) -> None:
    """As decode makes them: a block an event."""
    for _ in range(30_000):
        index.apply(rng.choice(replicas), Tier.DEVICE, [rng.getrandbits(64)], [])


def with_holes(index: BlockIndex, replicas: list[str], rng: random.Random) -> None:
    """Every third block is evicted again."""
    for _ in range(450):
        keys = [rng.getrandbits(64) for _ in range(100)]
        replica = rng.choice(replicas)
        index.apply(replica, Tier.DEVICE, keys, [])
        index.apply(replica, Tier.DEVICE, [], keys[::3])


@pytest.mark.parametrize("fill", [in_prompts, one_by_one, with_holes])
def test_the_index_takes_no_more_memory_than_it_accounts_for(
    fill: Callable[[BlockIndex, list[str], random.Random], None],
) -> None:
    replicas = [f"n{number}" for number in range(64)]
    index = fleet(*replicas)
    gc.collect()
    tracemalloc.start()
    fill(index, replicas, random.Random(1))
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    accounted = index.statistics().bytes
    assert 0.4 * accounted < taken <= accounted
    index.check()


def test_a_budget_holds_and_what_goes_makes_room() -> None:
    index = fleet("n1", "n2", budget_bytes=100_000)
    rng = random.Random(2)
    keys = [rng.getrandbits(64) for _ in range(9_000)]
    index.apply("n1", Tier.DEVICE, keys, [])
    full = index.statistics()
    assert full.bytes <= 100_000
    assert full.keys + full.refused == 9_000
    assert index.longest_prefix(keys, 0.0).device == {"n1": full.keys}
    index.apply("n1", Tier.DEVICE, keys[full.keys :], keys[: full.keys])
    assert index.statistics().keys == 9_000 - full.keys
    assert index.statistics().refused == full.refused


def test_memory_stays_flat_over_events_without_end() -> None:
    index = fleet("n1", "n2")
    rng = random.Random(3)
    held: list[list[int]] = []
    sizes: list[int] = []
    for step in range(2_000):
        keys = [rng.getrandbits(64) for _ in range(20)]
        gone = held.pop(rng.randrange(len(held))) if len(held) > 50 else []
        index.apply(rng.choice(["n1", "n2"]), Tier.DEVICE, keys, [])
        for replica in ("n1", "n2"):
            index.apply(replica, Tier.DEVICE, [], rng.sample(gone, len(gone)))
        held.append(keys)
        if step % 500 == 499:
            sizes.append(index.statistics().bytes)
    assert max(sizes) < 1.2 * min(sizes)
    index.check()
