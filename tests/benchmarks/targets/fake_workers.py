"""A prefill and a decode worker in one process: our data plane's real server, the fake engine behind it.

Prefill legs give their one token like any other leg; no KV moves, because it is the gateway that is measured.
"""

import argparse
import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import uvloop

from cluster.dataplane.frames import Delta, Generate, Load, Role, TakeRole, WorkerInfo
from cluster.dataplane.legs import NO_WORK, LegSink, LegWork
from cluster.dataplane.server import ServerSettings, WorkerServer
from cluster.models.identity import model_digest
from tests.benchmarks.fake_engine import TOKEN_ID, TOKEN_TEXT, FakeEngine, Run
from tests.benchmarks.targets.announce import announce

SECRET = b"benchmark-secret-benchmark-secret"
LOAD_INTERVAL_S = 1.0
PARENT_LOOK_S = 1.0
MAX_MODEL_LEN = 8192
ROLES: tuple[Role, ...] = ("prefill", "decode")


class Sampling(msgspec.Struct):
    """The one field of vLLM's SamplingParams that the fake engine obeys."""

    max_tokens: int = 16


@dataclass(slots=True)
class FakeLeg:
    """A leg that runs in the fake engine."""

    engine: FakeEngine
    run: Run
    work: LegWork = NO_WORK

    def abort(self) -> None:
        self.engine.cancel(self.run)

    def source_lost(self) -> None:
        """No leg waits for blocks here."""


class FakeLegs:
    """The `LegHandler`: each leg is a run of the fake engine."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._sampling = msgspec.msgpack.Decoder(Sampling)

    def start(self, generate: Generate, sink: LegSink) -> FakeLeg:
        tokens = self._sampling.decode(generate.sampling).max_tokens
        cached: int | None = 0

        def emit(count: int, last: bool) -> None:
            nonlocal cached
            sink.delta(
                Delta(
                    0,
                    [TOKEN_ID] * count,
                    TOKEN_TEXT * count,
                    finish_reason="length" if last else None,
                    num_cached_tokens=cached,
                )
            )
            cached = None
            if last:
                sink.end()

        return FakeLeg(self._engine, self._engine.start(tokens, emit))

    def let_go(self, handoff_id: str) -> None:
        """No leg here hands anything over."""

    def take_role(self, order: TakeRole) -> None:
        """Nobody is lent here."""


def worker_info(role: Role) -> WorkerInfo:
    """A worker the gateway and the router can place."""
    return WorkerInfo(
        replica_id=f"fake-{role}",
        role=role,
        node_id="node",
        engine="simulated",
        store_address="127.0.0.1:1",
        kv_fingerprint="fake",
        block_size_tokens=16,
        max_model_len=MAX_MODEL_LEN,
        epoch="0",
    )


class FakeWorker:
    """A listening worker. `serve` runs until it is cancelled."""

    def __init__(self, role: Role, model: str, secret: bytes, step_s: float) -> None:
        self.info = worker_info(role)
        self._engine = FakeEngine(step_s)
        self._server = WorkerServer(
            ServerSettings(self.info, secret, model_digest(model)), FakeLegs(self._engine), kv_snapshot=lambda tier: ()
        )

    async def listen(self) -> str:
        """The address gateways connect to."""
        return await self._server.listen("127.0.0.1")

    async def serve(self) -> None:
        """Step the engine, and report as a worker does."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._engine.serve())
                group.create_task(self._report())
        finally:
            await self._server.close()

    async def _report(self) -> None:
        while True:
            self._server.publish_load(
                Load(self._server.streams, 0, 0, queued_prefill_tokens=0, kv_usage=0.0, healthy=True, draining=False)
            )
            await asyncio.sleep(LOAD_INTERVAL_S)


async def serve(model: str, secret: bytes, step_s: float) -> None:
    """Both workers, announced by their addresses."""
    workers = [FakeWorker(role, model, secret, step_s) for role in ROLES]
    addresses = {worker.info.replica_id: await worker.listen() for worker in workers}
    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(worker.serve()) for worker in workers]
        announce("workers", addresses=addresses)
        await parent_is_gone()
        for task in serving:
            task.cancel()


async def parent_is_gone() -> None:
    """Return when whoever started this process has ended, however it did."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110  # nothing to be woken by
        await asyncio.sleep(PARENT_LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--step-s", type=float, default=0.0)
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        uvloop.run(serve(options.model, SECRET, options.step_s))


if __name__ == "__main__":
    main()
