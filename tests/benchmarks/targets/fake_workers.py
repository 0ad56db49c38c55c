"""A prefill and a decode worker in one process: our data plane's real server, the fake engine behind it.

Prefill legs give their one token like any other leg; no KV moves, because it is the gateway that is measured.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from cluster.dataplane.frames import Delta, Generate, Load, Role, WorkerInfo
from cluster.dataplane.server import LegSink, ServerSettings, WorkerServer
from tests.benchmarks.fake_engine import TOKEN_ID, TOKEN_TEXT, FakeEngine, Run

SECRET = b"benchmark-secret-benchmark-secret"
LOAD_INTERVAL_S = 1.0


class Sampling(msgspec.Struct):
    """The one field of vLLM's SamplingParams that the fake engine obeys."""

    max_tokens: int = 16


@dataclass(slots=True)
class FakeLeg:
    """A leg that runs in the fake engine."""

    engine: FakeEngine
    run: Run

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


def worker_info(role: Role, max_model_len: int) -> WorkerInfo:
    """A worker the gateway and the router can place."""
    return WorkerInfo(
        replica_id=f"fake-{role}",
        role=role,
        node_id="node",
        engine="simulated",
        store_address="127.0.0.1:1",
        kv_fingerprint="fake",
        block_size_tokens=16,
        max_model_len=max_model_len,
        epoch="0",
    )


async def start_worker(role: Role, engine: FakeEngine, model_fingerprint: str, max_model_len: int) -> tuple[str, WorkerServer]:
    """A listening worker and its address."""
    settings = ServerSettings(worker_info(role, max_model_len), SECRET, model_fingerprint)
    server = WorkerServer(settings, FakeLegs(engine))
    return await server.listen("127.0.0.1"), server


async def report_load(server: WorkerServer) -> None:
    """Say for ever that all is well, as a worker does at least once a second."""
    while True:
        server.publish_load(
            Load(server.streams, 0, 0, queued_prefill_tokens=0, kv_usage=0.0, healthy=True, draining=False)
        )
        await asyncio.sleep(LOAD_INTERVAL_S)
