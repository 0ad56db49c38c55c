"""One side of the router benchmark as a process: an order a line on standard input, a result a line on standard output.

Standard library only: the rival's environment reads it too. Both sides do the same orders, so that they can take turns.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE_BYTES = 4096

Order = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds since it was made, by the wall and of this process's CPU, all threads."""

    wall: float
    cpu: float

    @classmethod
    def started(cls) -> "Clock":
        return cls(time.perf_counter(), time.process_time())

    def per(self, count: int) -> dict[str, float]:
        """Microseconds for each of `count` things."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"wall_us": 1e6 * wall / count, "cpu_us": 1e6 * cpu / count}


def resident_bytes() -> int:
    """Of this process, after a collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def settle() -> None:
    """What was prepared is none of the collector's business while something is timed."""
    gc.collect()
    gc.freeze()


async def serve(orders: Mapping[str, Order]) -> None:
    """Do what is ordered until standard input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        result = orders[order.pop("do")](**order)
        print(json.dumps(await result if isinstance(result, Awaitable) else result), flush=True)
