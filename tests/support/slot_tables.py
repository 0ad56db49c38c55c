"""Slot tables as a store makes them."""

from collections.abc import Iterable, Mapping

from kvtransfer.eviction.choice import PolicyName, policy_maker
from kvtransfer.eviction.shares import TenantShares
from kvtransfer.slot_records import Watermarks
from kvtransfer.slots import SlotTable, Tell
from kvtransfer.tenant import Tenant


def ignore(keys: Iterable[bytes], readable: bool) -> None:
    """A follower that does nothing."""


def slot_table(
    slots: int,
    policy: PolicyName = "lru",
    weights: Mapping[Tenant, float] | None = None,
    marks: Watermarks | None = None,
    tell: Tell = ignore,
) -> SlotTable:
    """Without watermarks a table evicts only when it is full."""
    marks = marks or Watermarks(slots, slots)
    return SlotTable(slots, TenantShares(marks.low, policy_maker(policy, slots), weights), marks, tell)
