"""The least recently used slot goes first."""

from kvtransfer.eviction import LeastRecentlyUsed


def test_the_oldest_offer_is_chosen_first() -> None:
    policy = LeastRecentlyUsed()
    for slot in (3, 1, 2):
        policy.offer(slot)
    policy.withdraw(3)
    policy.offer(3)
    assert [policy.choose(), policy.choose(), policy.choose(), policy.choose()] == [1, 2, 3, None]


def test_a_withdrawn_slot_is_never_chosen() -> None:
    policy = LeastRecentlyUsed()
    policy.offer(1)
    policy.withdraw(1)
    assert policy.choose() is None
    assert len(policy) == 0
