"""The time of day may jump: no wait and no age looks at it."""

import ast
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, modules
from tests.faults.pools import pools
from tests.support.store_thread import running_store

DAY_S = 86_400.0
WALL_CLOCKS = {"time", "time_ns", "ctime", "localtime", "gmtime", "now", "utcnow", "today"}

TELLS_THE_TIME = {
    "cluster/autoscaling.py": "when the number of replicas changed, for `baton pools history`",
    "cluster/cli/board.py": "since when a replica is in its state, as Serve says it",
    "cluster/cli/run.py": "when the run's record was written",
    "cluster/cli/status.py": "how old that record is",
    "cluster/doctor/gather.py": "what time it is on a node, for who compares it",
    "cluster/doctor/visit.py": "what time it is here, beside a node's",
    "cluster/gateway/answers.py": "`created` of an answer",
    "cluster/gateway/chat_stream.py": "`created` of an answer",
    "cluster/gateway/shapes.py": "`completed_at` of an answer",
    "cluster/gateway/tracing.py": "when a span was",
    "cluster/workers/worker.py": "when its role changed, for `baton pools history`",
}
"""The files that say to somebody outside what time it is."""


def asks(tree: ast.AST) -> bool:
    """Whether a module names a clock of the time of day."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == "time" and {a.name for a in node.names} & WALL_CLOCKS)
        or (
            isinstance(node, ast.Attribute)
            and node.attr in WALL_CLOCKS
            and isinstance(node.value, ast.Name)
            and node.value.id in ("time", "datetime", "date")
        )
        for node in ast.walk(tree)
    )


def test_only_who_tells_the_time_of_day_asks_for_it() -> None:
    found = {str(path.relative_to(ROOT)) for path in modules() if asks(ast.parse(path.read_text(encoding="utf-8")))}
    assert found == set(TELLS_THE_TIME)


def jumping(real_s: float) -> Iterator[float]:
    """Days forward and back, a new one each time it is asked."""
    return (real_s + days * DAY_S for days in itertools.cycle((1, -1, 400, -400)))


async def test_a_clock_that_jumps_makes_no_hand_off_late(
    model: Path, fingerprint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = jumping(time.time())
    monkeypatch.setattr(time, "time", lambda: next(times))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(times) * 1e9))
    with running_store(fingerprint) as store:
        async with pools(model, [store], [store]) as cluster:
            async with cluster.load() as load:
                await load.answered(20)
            assert cluster.counted("handoffs_ready") >= 20
            assert cluster.counted("handoffs_late", "handoffs_failed", "legs_failed_deadline", "store_lost") == 0
            await cluster.nothing_is_left()
