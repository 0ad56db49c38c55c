"""The worker's end of the data plane: a whole worker with a simulated engine and a real store."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import PROTOCOL_VERSION, Challenge, FromGateway, Hello
from cluster.dataplane.pool import WorkerPool
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from cluster.errors import BatonError
from cluster.models.tiny import ensure_tiny_llama
from cluster.workers.worker import Worker
from kvtransfer import auth
from tests.fuzz.frame_bytes import spoiled_frame
from tests.fuzz.peer import Peer
from tests.fuzz.typed import Known, Maker, encoded
from tests.support.store_thread import SECRET as STORE_SECRET
from tests.support.store_thread import StoreThread, running_store
from tests.support.two_nodes import Shape, running_worker
from tests.unit.dataplane.peers import DEADLINE_S, MODEL, SECRET, pool_settings

KV_BYTES = 16
STORE_SLOTS = 1024
SHAPE = Shape(block_size=16, max_model_len=128, device_blocks=256)
SAMPLINGS = (
    {"max_tokens": 4},
    {"max_tokens": 40, "n": 3, "ignore_eos": True},
    {"max_tokens": 8, "logprobs": 2, "stop": ["a"]},
    {"n": 0},
    {"n": 2**40},
    {"n": 17_000, "max_tokens": 100},
    {"max_tokens": -1},
    {"max_tokens": 2**40, "stop": "x"},
    {"temperature": float("nan")},
    {"stop": [5]},
    {"logprobs": -1},
    [],
    5,
)
"""What comes as SamplingParams."""

KNOWN = Known(
    {
        "stream": tuple(range(4)),
        "request_id": ("r1", "r2", "fuzzed"),
        "token_ids": (b"\x05\x00\x00\x00" * 40, b"\x05\x00\x00\x00", b"\x05\x00\x00", b"", b"\xff" * 8,
        b"\x05\x00\x00\x00" * 500),
        "sampling": SAMPLINGS,
        "handoff_id": ("h1", "h2", ""),
        "fetch_id": ("f1", ""),
        "source": ("tcp://127.0.0.1:1", "", "nonsense", "tcp://[::1"),
        "deadline_s": (0.0, 0.05, 0.2, -1.0, float("nan"), float("inf"), 1e300),
        "index": (0, 1, 2, -1, 2**40),
        "load_limit_tokens": (None, 0, -1, 16, 2**62),
        "lora_name": (None, None, "x"),
        "cache_salt": (None, "s", ""),
    }
)  # fmt: skip


class WorkerVictim:
    """See `running_worker_victim`."""

    name = "data plane, worker"

    def __init__(self, worker: Worker, engine: SimulatedEngine, store: StoreThread, pool: WorkerPool) -> None:
        self._worker = worker
        self._engine = engine
        self._store = store
        self._pool = pool

    async def attack(self, rng: random.Random) -> int:
        """See `Victim`."""
        host, _, port = self._worker.address.rpartition(":")
        peer = Peer(*await asyncio.open_connection(host, int(port)))
        challenge = await peer.body()
        sent = 0
        if challenge is not None and rng.random() < 0.9:
            await peer.send(spoiled_frame(_hello(challenge, rng), rng, 0.1))
            sent += 1
        maker = Maker(rng, KNOWN)
        for _ in range(rng.choice((0, 1, 3, 10, 25))):
            await peer.send(spoiled_frame(encoded(maker.message(FromGateway)), rng, 0.05))
            sent += 1
        await peer.leave(rng)
        return sent

    async def witness(self) -> list[str]:
        """See `Victim`."""
        sampling = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": 8, "ignore_eos": True})
        request = GenerationRequest("witness", [5] * 20, sampling, max_tokens=8)
        stream = self._pool.open("w0", Leg("decode", request, sampling, None, DEADLINE_S))
        tokens = 0
        try:
            while stream.open:
                tokens += sum(len(delta.token_ids) for delta in await stream.next())
        except BatonError as error:
            return [f"the witness's request failed: {error!r}"]
        connects = self._pool._links["w0"].connects
        wrong = [] if tokens == 8 else [f"the witness got {tokens} tokens of 8"]
        return wrong if connects == 1 else [*wrong, f"the witness had to connect {connects} times"]

    def left(self) -> dict[str, object]:
        """See `Victim`."""
        slots = self._store.look(lambda store: store.slot_statistics())
        server = self._worker._server
        self._engine.check()
        self._store.look(lambda store: store.check())
        held = {
            "connections": len(server._gateways) - 1,
            "streams": server.streams,
            "legs": len(self._worker._legs),
            "engine jobs": len(self._engine._jobs),
            "pins": slots.pins,
            "writing slots": slots.writing,
        }
        return {what: count for what, count in held.items() if count}


@asynccontextmanager
async def running_worker_victim() -> AsyncIterator[WorkerVictim]:
    """Everything is closed afterwards."""
    model = ensure_tiny_llama()

    def settings(store: StoreAccess | None) -> SimulatedSettings:
        return SimulatedSettings(
            model, "fuzz", max_model_len=SHAPE.max_model_len, block_size=SHAPE.block_size,
            device_blocks=SHAPE.device_blocks, kv_bytes_per_token=KV_BYTES, prefill_tokens_per_s=1e9, decode_step_s=0.0,
            decode_request_s=0.0, store=store,
        )  # fmt: skip

    with running_store(kv_fingerprint(settings(None)).digest(), STORE_SLOTS * SHAPE.block_size * KV_BYTES) as store:
        engine = await SimulatedEngine.create(settings(StoreAccess(store.socket_name, STORE_SECRET, "w0")))
        async with running_worker("w0", store, engine, SHAPE) as worker, WorkerPool(pool_settings()) as pool:
            pool.update({"w0": worker.address})
            await pool.wait_for(lambda fleet: any(r.ready for r in fleet.replicas.values()), DEADLINE_S)
            yield WorkerVictim(worker, engine, store, pool)


def _hello(challenge: bytes, rng: random.Random) -> bytes:
    nonce = msgspec.msgpack.decode(challenge, type=Challenge).nonce
    secret = SECRET if rng.random() < 0.9 else b"another"
    version = PROTOCOL_VERSION if rng.random() < 0.97 else rng.choice((0, -1, 2**63))
    model = MODEL if rng.random() < 0.97 else "another"
    return encoded(Hello(version, rng.choice(("raw", "", "x" * 2000)), model, auth.prove(secret, nonce)))
