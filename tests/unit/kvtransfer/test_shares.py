"""No tenant is pushed below its share by another."""

from kvtransfer.eviction.choice import policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.tenant import NO_TENANT, tenant_of

A, B, C = b"a", b"b", b"c"


def shares(capacity: int = 12, weights: dict[bytes, float] | None = None, **held: int) -> TenantShares:
    """Each tenant holds so many slots, all on offer; `a` has slots from 100 on, `b` from 200."""
    made = TenantShares(capacity, policy_maker("lru", capacity), weights)
    for number, (name, count) in enumerate(held.items(), 1):
        for slot in range(100 * number, 100 * number + count):
            made.hold(name.encode())
            made.offer(name.encode(), [slot], [b"%d" % slot])
    return made


def taken(chosen: list[int]) -> dict[int, int]:
    """How many slots of each tenant, by hundreds."""
    return {number: sum(slot // 100 == number for slot in chosen) for number in {slot // 100 for slot in chosen}}


def test_alone_a_tenant_evicts_its_own() -> None:
    assert shares(a=12).choose(3, A) == [100, 101, 102]


def test_who_wants_more_than_its_share_gives_up_its_own() -> None:
    assert taken(shares(a=6, b=6).choose(4, A)) == {1: 4}


def test_a_newcomer_takes_from_who_is_most_above_its_share_and_no_more_than_to_there() -> None:
    made = shares(a=10, b=2)
    assert taken(made.choose(12, C)) == {1: 6}
    assert made.share(A) == 6


def test_two_above_their_share_are_brought_to_one_level() -> None:
    assert taken(shares(capacity=20, a=8, b=12).choose(6, C)) == {1: 1, 2: 5}


def test_a_weight_makes_a_share_larger() -> None:
    assert taken(shares(weights={A: 2.0}, a=6, b=6).choose(4, A)) == {2: 2, 1: 2}


def test_what_is_pinned_is_not_taken_and_nobody_else_is_pushed_for_it() -> None:
    made = shares(a=8, b=4)
    for slot in range(100, 108):
        made.withdraw(A, [slot])
    assert made.choose(4, C) == []


def test_with_nobody_wanting_the_largest_gives() -> None:
    assert taken(shares(capacity=10, a=9, b=3).choose(2)) == {1: 2}


def test_who_holds_nothing_any_more_is_forgotten() -> None:
    made = shares(a=1)
    made.withdraw(A, [100])
    made.give_back(A)
    assert (made.tenants, made.held(A), len(made)) == (0, 0, 0)
    made.check({})


def test_a_tenant_is_named_without_its_salt() -> None:
    assert tenant_of(None) == tenant_of("") == NO_TENANT
    name = tenant_of("a salt")
    assert len(name) == 8
    assert b"salt" not in name
    assert name == tenant_of("a salt") != tenant_of("another")
