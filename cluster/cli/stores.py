"""What people ask of all stores of a service, through the seam of one store. Every request does a bounded part."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kvtransfer.inspection import Dropped, SlotLine, SlotPage, StoreStatistics, Verified

R = TypeVar("R")


class InspectedStore(Protocol):
    """One store, near or far: see `kvtransfer.aclient.AsyncStoreClient`."""

    async def statistics(self) -> StoreStatistics: ...

    async def slots(self, first_slot: int) -> SlotPage: ...

    async def drop(self, keys: list[bytes]) -> Dropped: ...

    async def verify(self, first_slot: int) -> Verified: ...


@dataclass(frozen=True, slots=True)
class NamedStore:
    """`node` is how its node's id begins, `address` where other stores reach it."""

    node: str
    address: str
    store: InspectedStore


@dataclass(frozen=True, slots=True)
class Of(Generic[R]):
    """What one store answered."""

    node: str
    address: str
    result: R


@dataclass(frozen=True, slots=True)
class Listing:
    """The first `lines` of a store; `more` when there are others."""

    slot_bytes: int
    lines: Sequence[SlotLine]
    more: bool


@dataclass(frozen=True, slots=True)
class Drops:
    """Blocks that went, and that stayed because they are in use."""

    dropped: int
    in_use: int


@dataclass(frozen=True, slots=True)
class Verification:
    """Blocks whose checksums were computed, and the keys of those that were corrupt."""

    looked_at: int
    corrupt: Sequence[bytes]


Report = Callable[[str, int, int], None]
"""Told how far a store is: its address, slots done, slots in all."""


async def statistics(stores: Sequence[NamedStore]) -> list[Of[StoreStatistics]]:
    """Of each."""
    return [_of(named, await named.store.statistics()) for named in stores]


async def listing(stores: Sequence[NamedStore], limit: int) -> list[Of[Listing]]:
    """The first blocks of each."""
    return [_of(named, await _first_lines(named.store, limit)) for named in stores]


async def drop(stores: Sequence[NamedStore], beginnings: Sequence[str]) -> list[Of[Drops]]:
    """Forget the blocks whose keys begin so, in hexadecimal, in every store."""
    return [_of(named, await _drop(named.store, tuple(beginnings))) for named in stores]


async def verify(stores: Sequence[NamedStore], report: Report) -> list[Of[Verification]]:
    """One store after the other."""
    return [_of(named, await _verify(named, report)) for named in stores]


async def _first_lines(store: InspectedStore, limit: int) -> Listing:
    lines: list[SlotLine] = []
    slot_bytes = 0
    async for page in _pages(store):
        slot_bytes = page.slot_bytes
        lines += page.lines
        if len(lines) > limit:
            break
    return Listing(slot_bytes, lines[:limit], len(lines) > limit)


async def _drop(store: InspectedStore, beginnings: tuple[str, ...]) -> Drops:
    dropped = in_use = 0
    async for page in _pages(store):
        keys = [line.key for line in page.lines if line.key.hex().startswith(beginnings)]
        if keys:
            answer = await store.drop(keys)
            dropped += answer.dropped
            in_use += answer.in_use
    return Drops(dropped, in_use)


async def _verify(named: NamedStore, report: Report) -> Verification:
    total = (await named.store.statistics()).slots
    looked_at, corrupt = 0, []
    next_slot: int | None = 0
    while next_slot is not None:
        report(named.address, next_slot, total)
        verified = await named.store.verify(next_slot)
        looked_at += verified.looked_at
        corrupt += verified.corrupt
        next_slot = verified.next_slot
    report(named.address, total, total)
    return Verification(looked_at, corrupt)


async def _pages(store: InspectedStore) -> AsyncIterator[SlotPage]:
    next_slot: int | None = 0
    while next_slot is not None:
        page = await store.slots(next_slot)
        yield page
        next_slot = page.next_slot


def _of(named: NamedStore, result: R) -> Of[R]:
    return Of(named.node, named.address, result)
