"""What every policy owes the slot table, and what each is known for."""

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvtransfer.eviction.arc import AdaptiveReplacement
from kvtransfer.eviction.choice import PolicyName, policy_maker
from kvtransfer.eviction.lru import LeastRecentlyUsed
from kvtransfer.eviction.policy import EvictionPolicy
from kvtransfer.eviction.prefix_aware import PrefixAware
from kvtransfer.eviction.s3_fifo import S3Fifo
from kvtransfer.eviction.sieve import Sieve
from kvtransfer.eviction.uses import Uses

NAMES = get_args(PolicyName)
SLOTS = 16


def key(number: int) -> bytes:
    return bytes([number])


def offer(policy: EvictionPolicy, *slots: int) -> None:
    """Each slot's block is used; the key is the slot's own."""
    policy.offer(slots, [key(slot) for slot in slots])


def use_again(policy: EvictionPolicy, *slots: int) -> None:
    policy.withdraw(slots)
    offer(policy, *slots)


def drain(policy: EvictionPolicy) -> list[int]:
    chosen = []
    while (slot := policy.choose()) is not None:
        chosen.append(slot)
    return chosen


def counted_apart() -> Uses:
    """Every use counts, however soon it comes."""
    uses = Uses(SLOTS)
    uses._apart = -1
    return uses


@pytest.mark.parametrize("name", NAMES)
def test_a_withdrawn_slot_is_never_chosen(name: PolicyName) -> None:
    policy = policy_maker(name, SLOTS)()
    offer(policy, 1, 2)
    policy.withdraw([1])
    assert len(policy) == 1
    assert drain(policy) == [2]
    assert len(policy) == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_was_never_used_again_goes_in_order_of_age(name: PolicyName) -> None:
    policy = policy_maker(name, SLOTS)()
    offer(policy, 3, 1, 2)
    assert drain(policy) == [3, 1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_with_another_block_has_nothing_of_the_one_before(name: PolicyName) -> None:
    policy = policy_maker(name, SLOTS)()
    offer(policy, 1, 2)
    policy.withdraw([1])
    policy.offer([1], [b"another"])
    assert drain(policy) == [2, 1]


def test_the_least_recently_used_goes_first() -> None:
    policy = LeastRecentlyUsed()
    offer(policy, 3, 1, 2)
    use_again(policy, 3)
    assert drain(policy) == [1, 2, 3]


@pytest.mark.parametrize("make", [PrefixAware, AdaptiveReplacement, S3Fifo])
def test_a_block_of_two_prompts_outlives_many_of_one(make: Callable[[Uses], EvictionPolicy]) -> None:
    policy = make(counted_apart())
    offer(policy, 1, 2, 3)
    use_again(policy, 1)
    offer(policy, 4, 5)
    assert policy.choose() == 2
    assert policy.choose() == 3


def test_prefix_aware_gives_up_the_end_of_a_chain_before_its_start() -> None:
    policy = PrefixAware(counted_apart())
    offer(policy, 5, 4, 3, 2, 1)  # one prompt of five blocks, from the end on
    use_again(policy, 2, 1)  # another shares the first two
    assert drain(policy) == [5, 4, 3, 2, 1]


def test_prefix_aware_gives_up_what_many_used_when_it_is_old_enough() -> None:
    policy = PrefixAware(counted_apart())
    offer(policy, 1)
    use_again(policy, 1)
    offer(policy, 2, 3, 4, 5)
    assert drain(policy) == [2, 3, 1, 4, 5]


def test_prefix_aware_remembers_what_it_gave_up() -> None:
    policy = PrefixAware(counted_apart())
    offer(policy, 1)
    assert policy.choose() == 1
    offer(policy, 1, 2, 3)
    policy.bias = 1.0
    assert policy.choose() == 2


def test_prefix_aware_asks_less_of_uses_when_what_was_used_once_comes_back_and_more_when_the_others_do() -> None:
    policy = PrefixAware(counted_apart())
    offer(policy, 1, 2)
    use_again(policy, 2)
    assert policy.choose() == 1
    offer(policy, 1)
    assert policy.bias < 1.0
    before = policy.bias
    assert policy.choose() == 2
    offer(policy, 2)
    assert policy.bias > before


def test_the_hand_of_sieve_spares_what_was_used_since_it_passed_and_goes_on_from_where_it_stands() -> None:
    policy = Sieve(counted_apart())
    offer(policy, 1, 2, 3, 4)
    use_again(policy, 1, 3)
    assert policy.choose() == 2
    offer(policy, 5)
    assert policy.choose() == 4
    assert drain(policy) == [5, 1, 3]


def test_s3_fifo_lets_a_ghost_back_into_the_main_queue() -> None:
    policy = S3Fifo(counted_apart())
    offer(policy, 1, 2, 3)
    assert policy.choose() == 1
    offer(policy, 1, 4)
    assert drain(policy) == [2, 3, 4, 1]


def test_arc_gives_more_room_to_the_side_whose_ghosts_come_back() -> None:
    policy = AdaptiveReplacement(counted_apart())
    offer(policy, 1, 2, 3)
    use_again(policy, 3)
    assert policy.choose() == 1
    offer(policy, 1)
    assert policy._once_target > 0
    assert policy.choose() == 3, "the one block used once is within its share"


def test_uses_of_one_prompt_count_once() -> None:
    uses = Uses(SLOTS)
    assert uses.use([b"a"] * 5) == [1] * 5
    uses.use(map(key, range(SLOTS)))
    assert uses.use([b"a", b"a"]) == [2, 2]


def test_uses_are_forgotten_for_the_oldest() -> None:
    uses = Uses(2)
    uses.use(map(key, range(100)))
    assert len(uses) == 8
    assert uses.use([key(0)]) == [1]


class PolicyAgainstSet(RuleBasedStateMachine):
    """Any policy offers exactly what was offered and not withdrawn, each slot once."""

    name: PolicyName

    def __init__(self) -> None:
        super().__init__()
        self.policy = policy_maker(self.name, 6)()
        self.offered: set[int] = set()
        self.withdrawn: dict[int, bytes] = {}

    @rule(blocks=st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=3))
    def offer_new(self, blocks: dict[int, int]) -> None:
        fresh = {slot: key(number) for slot, number in blocks.items() if slot not in self.offered}
        self.policy.offer(list(fresh), list(fresh.values()))
        self.offered |= fresh.keys()
        self.withdrawn |= fresh

    @precondition(lambda self: self.offered)
    @rule(data=st.data(), again=st.booleans())
    def withdraw(self, data: st.DataObject, again: bool) -> None:
        slot = data.draw(st.sampled_from(sorted(self.offered)))
        self.policy.withdraw([slot])
        if again:
            self.policy.offer([slot], [self.withdrawn[slot]])
        else:
            self.offered.discard(slot)

    @rule()
    def choose(self) -> None:
        slot = self.policy.choose()
        assert (slot in self.offered) if self.offered else slot is None
        self.offered.discard(slot if slot is not None else -1)

    @invariant()
    def agrees(self) -> None:
        assert len(self.policy) == len(self.offered)


def machine_of(policy: PolicyName) -> type[RuleBasedStateMachine]:
    machine = type(f"{policy}_against_set", (PolicyAgainstSet,), {"name": policy})
    machine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
    return machine


TestPrefixAware = machine_of("prefix_aware").TestCase
TestLru = machine_of("lru").TestCase
TestArc = machine_of("arc").TestCase
TestS3Fifo = machine_of("s3_fifo").TestCase
TestSieve = machine_of("sieve").TestCase
