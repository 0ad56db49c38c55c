"""A signal wakes whoever waits at that moment."""

import asyncio

import pytest

from kvtransfer.signals import Signals


async def test_everybody_who_waits_for_a_name_is_woken() -> None:
    signals = Signals()
    waits = [asyncio.create_task(signals.changed(name)) for name in ("a", "a", "b")]
    await asyncio.sleep(0)
    signals.notify("a")
    await asyncio.wait(waits[:2], timeout=5)
    assert [wait.done() for wait in waits] == [True, True, False]
    signals.notify("b")
    await waits[2]
    assert len(signals) == 0


async def test_a_cancelled_wait_leaves_nothing() -> None:
    signals = Signals()
    wait = asyncio.create_task(signals.changed("a"))
    await asyncio.sleep(0)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert len(signals) == 0
    signals.notify("a")
