"""The policies by name."""

from collections.abc import Callable
from typing import Literal

from kvtransfer.eviction.arc import AdaptiveReplacement
from kvtransfer.eviction.lru import LeastRecentlyUsed
from kvtransfer.eviction.policy import EvictionPolicy
from kvtransfer.eviction.prefix_aware import PrefixAware
from kvtransfer.eviction.s3_fifo import S3Fifo
from kvtransfer.eviction.sieve import Sieve
from kvtransfer.eviction.uses import Uses

PolicyName = Literal["prefix_aware", "lru", "arc", "s3_fifo", "sieve"]

PolicyMaker = Callable[[], EvictionPolicy]


def policy_maker(name: PolicyName, slots: int) -> PolicyMaker:
    """Makes policies for parts of one table of `slots` slots; they share what is remembered of keys."""
    uses = Uses(slots)
    makers: dict[PolicyName, PolicyMaker] = {
        "prefix_aware": lambda: PrefixAware(uses),
        "lru": LeastRecentlyUsed,
        "arc": lambda: AdaptiveReplacement(uses),
        "s3_fifo": lambda: S3Fifo(uses),
        "sieve": lambda: Sieve(uses),
    }
    return makers[name]
