"""The data plane alone: frames/s, tokens/s and the hop of a paced token, worker and gateway in two processes.

    python -m tests.benchmarks.dataplane [--runs 5]

The worker's legs make tokens from nothing, so what is measured is encoding, sockets, decoding and hand-over.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import Delta, Generate, Load, Ping, TakeRole, WorkerInfo
from cluster.dataplane.legs import NO_WORK, LegSink, LegWork
from cluster.dataplane.link import PoolSettings
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.server import ServerSettings, WorkerServer
from tests.benchmarks.machine import describe
from tests.benchmarks.spread import spread

SECRET, MODEL = b"benchmark", "model"
LOAD = Load(0, 0, 0, 0, 0.0, healthy=True, draining=False)


class Demand(msgspec.Struct):
    """What a leg makes: one token in a turn of the loop, with a pause before each."""

    max_tokens: int
    pause_s: float = 0.0


class Fountain:
    """A `LegHandler` whose legs make tokens; the text of a paced one is the time it was made at."""

    def start(self, generate: Generate, sink: LegSink) -> "Flow":
        demand = msgspec.msgpack.decode(bytes(generate.sampling), type=Demand)
        return Flow(asyncio.ensure_future(_flow(demand, sink)))

    def let_go(self, handoff_id: str) -> None:
        """No leg here hands anything over."""

    def take_role(self, order: TakeRole) -> None:
        """Nobody is lent here."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One leg."""

    task: "asyncio.Future[None]"
    work: LegWork = NO_WORK

    def abort(self) -> None:
        self.task.cancel()

    def source_lost(self) -> None:
        """No leg here waits for one."""


async def _flow(demand: Demand, sink: LegSink) -> None:
    for i in range(demand.max_tokens):
        await asyncio.sleep(demand.pause_s)
        finish = "length" if i == demand.max_tokens - 1 else None
        sink.delta(Delta(0, [i], f"{time.monotonic()} " if demand.pause_s else " token", finish))
    sink.end()


def serve(address: Connection) -> None:
    """The worker's process, until it is terminated."""

    async def run() -> None:
        info = WorkerInfo("w1", "decode", "node", "none", "", "", 16, 4096, "1")
        server = WorkerServer(ServerSettings(info, SECRET, MODEL), Fountain())
        address.send(await server.listen("127.0.0.1"))
        server.publish_load(LOAD)
        await asyncio.get_running_loop().create_future()

    asyncio.run(run())


def leg(tokens: int, pause_s: float = 0.0) -> Leg:
    sampling = msgspec.msgpack.encode(Demand(tokens, pause_s))
    return Leg("decode", GenerationRequest("r", range(1024), sampling, tokens), sampling, None, 60.0)


async def drain(pool: WorkerPool, one: Leg) -> list[Delta]:
    stream = pool.open("w1", one)
    deltas: list[Delta] = []
    while stream.open or not deltas or deltas[-1].finish_reason is None:
        deltas += await stream.next()
    return deltas


async def token_rate(pool: WorkerPool, streams: int = 64, tokens: int = 1000) -> float:
    """Tokens/s of streams that make one token each in every turn of the worker's loop."""
    began = time.perf_counter()
    await asyncio.gather(*(drain(pool, leg(tokens)) for _ in range(streams)))
    return streams * tokens / (time.perf_counter() - began)


async def request_rate(pool: WorkerPool, requests: int = 3000, at_once: int = 32) -> float:
    """Streams/s of one token each, prompts of 1,024 tokens."""
    left = iter(range(requests))

    async def client() -> None:
        for _ in left:
            await drain(pool, leg(1))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(at_once)))
    return requests / (time.perf_counter() - began)


async def frame_rate(pool: WorkerPool, frames: int = 100_000) -> float:
    """Frames/s from gateway to worker, each encoded and decoded by itself: pings, of which the last is answered."""
    link = pool._links["w1"]
    connection = link._connection
    assert connection is not None
    done = asyncio.get_running_loop().create_future()
    receive = link.received

    def received(frame: Any) -> None:
        receive(frame)
        if getattr(frame, "number", None) == frames:
            done.set_result(None)

    link.received = received  # type: ignore[method-assign]
    began = time.perf_counter()
    for number in range(1, frames + 1):
        connection.send(Ping(number))
        if number % 100 == 0:
            await asyncio.sleep(0)
    await done
    del link.received
    return frames / (time.perf_counter() - began)


async def hop_ms(pool: WorkerPool, streams: int = 8, tokens: int = 100) -> float:
    """Median milliseconds from a paced token's making to its delivery, 8 streams of one token every 10 ms."""
    hops: list[float] = []

    async def client() -> None:
        stream = pool.open("w1", leg(tokens, 0.01))
        while stream.open:
            (delta,) = await stream.next()
            hops.extend(time.monotonic() - float(made) for made in delta.text.split())

    await asyncio.gather(*(client() for _ in range(streams)))
    return statistics.median(hops) * 1e3


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the report."""

    name: str
    unit: str
    take: Callable[[WorkerPool], Awaitable[float]]


MEASURES = (
    Measure("frames, one by one", "frames/s", frame_rate),
    Measure("tokens, 64 streams", "tokens/s", token_rate),
    Measure("requests, 1,024-token prompts", "requests/s", request_rate),
    Measure("hop of a paced token, median", "ms", hop_ms),
)


async def measure(address: str, runs: int) -> None:
    async with WorkerPool(PoolSettings("bench", SECRET, MODEL)) as pool:
        pool.update({"w1": address})
        await pool.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), 10.0)
        for each in MEASURES:
            values = [await each.take(pool) for _ in range(runs)]
            print(f"{each.name:32} {spread(values)} {each.unit}, n={runs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=serve, args=(theirs,), daemon=True)
    worker.start()
    try:
        print(describe())
        asyncio.run(measure(ours.recv(), arguments.runs))
    finally:
        worker.terminate()
        worker.join()


if __name__ == "__main__":
    main()
