"""What must hold when nothing is going on: all workers are back, and nobody holds anything for anybody."""

import asyncio
from collections.abc import Callable

from cluster.cli import stores
from kvtransfer.inspection import StoreStatistics
from tests.support.serving import BUSY, Served

ZERO: tuple[tuple[str, str], ...] = (
    *((name, "") for name in BUSY),
    ("baton_ledger_", ""),
    ("baton_index_replicas", 'state="degraded"'),
    ("baton_outputs_in_flight", ""),
    ("baton_waiting_", ""),
    ("baton_store_handoffs", ""),
    ("baton_store_slots", 'state="writing"'),
    ("baton_store_slots", 'state="pinned"'),
)
"""Beginnings of metrics that are zero then, and a label. The ledger's include how often a lease was released twice."""

LOOK_EVERY_S = 0.2


async def whole(served: Served, workers: int, deadline_s: float) -> None:
    """Return when so many workers are connected and well, each with its store. Raises `AssertionError`."""

    def missing(metrics: dict[str, float]) -> str:
        up = sum(value for name, value in metrics.items() if name.startswith("baton_store_up"))
        well = sum(value for name, value in metrics.items() if name.startswith("baton_worker_healthy"))
        return "" if (well, up) == (workers, workers) else f"{well:g} of {workers} are well, {up:g} have their store"

    said = await _last_word(served, missing, deadline_s)
    assert not said, said


async def held(served: Served, deadline_s: float) -> str:
    """What is still held after `deadline_s`, by whom; empty as soon as nothing is."""

    def busy(metrics: dict[str, float]) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in metrics.items() if value and _must_be_zero(name))

    return await _last_word(served, busy, deadline_s)


async def spoilt() -> str:
    """What the stores hold that they should not: slots in use, hand-offs, blocks with a wrong checksum."""
    from cluster.cli.store_actors import find_stores  # imports ray, which reads its environment then

    named = await find_stores(None)
    seen, verified = await stores.statistics(named), await stores.verify(named, lambda *_: None)
    busy = [f"{each.address} holds {each.result}" for each in seen if _is_used(each.result)]
    return "; ".join(busy + [f"{v.address}: {v.result.corrupt} corrupt" for v in verified if v.result.corrupt])


def _is_used(seen: StoreStatistics) -> bool:
    return bool(seen.pins or seen.writing_slots or seen.pinned_slots or seen.handoffs)


async def _last_word(served: Served, ask: Callable[[dict[str, float]], str], deadline_s: float) -> str:
    end = asyncio.get_running_loop().time() + deadline_s
    while True:
        said = ask(await asyncio.to_thread(served.metrics))
        if not said or asyncio.get_running_loop().time() > end:
            return said
        await asyncio.sleep(LOOK_EVERY_S)


def _must_be_zero(name: str) -> bool:
    return any(name.startswith(beginning) and label in name for beginning, label in ZERO)
