"""Slot tables as a store makes them."""

from collections.abc import Mapping

from kvtransfer.eviction.choice import PolicyName, policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.slot_records import Watermarks
from kvtransfer.slots import Follower, SlotTable
from kvtransfer.tenant import Tenant


def ignore(key: bytes, readable: bool) -> None:
    """A follower that does nothing."""


def slot_table(
    slots: int,
    policy: PolicyName = "lru",
    weights: Mapping[Tenant, float] | None = None,
    marks: Watermarks | None = None,
    tell: Follower = ignore,
) -> SlotTable:
    """Without watermarks a table evicts only when it is full."""
    marks = marks or Watermarks(slots, slots)
    return SlotTable(slots, TenantShares(marks.low, policy_maker(policy, slots), weights), marks, tell)
