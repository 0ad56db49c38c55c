"""A task set keeps its tasks until they end, and ends them when it closes."""

import asyncio
import logging

import pytest

from kvtransfer.tasks import TaskSet


async def test_closing_cancels_and_awaits_every_task() -> None:
    tasks, ended = TaskSet(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks.spawn(work())
    tasks.spawn(work())
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == [True, True]
    assert len(tasks) == 0


async def test_a_task_that_breaks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("broken")

    tasks = TaskSet()
    await asyncio.wait([tasks.spawn(work())])
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        assert caplog.messages == ["a task broke"]
