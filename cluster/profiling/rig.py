"""An engine as a worker starts it, with its node's store and another store beside, on this machine and without Ray.

Everything is gone when the block ends, however it ends. What cannot start raises `CannotProfile`, which names the key
of the configuration and what would help.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from pydantic import SecretStr

from cluster.errors import BatonError
from cluster.models.errors import ModelUnavailable
from cluster.models.fetch import resolve
from cluster.models.identity import model_digest
from cluster.profiling.bench import Stores
from cluster.profiling.schedule import Limits
from cluster.profiling.store_process import StoreProcess
from cluster.workers.cores import CoreLease
from cluster.workers.engine_choice import ChosenEngine, StartedEngine, Surroundings, choose
from configs.schema import BatonConfig, PoolConfig
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.errors import KvTransferError
from kvtransfer.fingerprint import KvFingerprint

Pool = Literal["prefill", "decode"]

STORE_START_S = 60.0
STORE_TOKENS = 65_536
"""Tokens whose KV fits in each store, if `store.bytes` allows: what is measured moves a part of that at a time."""


class CannotProfile(Exception):
    """Nothing can be measured; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Rig:
    """What was started, and how long that took."""

    engine: StartedEngine
    kind: str
    stores: Stores
    kv_bytes_per_token: int
    start_s: float

    @property
    def limits(self) -> Limits:
        """What the engine takes."""
        engine = self.engine
        return Limits(
            chunk_tokens=engine.max_batched_tokens,
            max_running=engine.max_running,
            max_model_len=engine.max_model_len,
            kv_tokens=engine.kv_blocks * engine.block_size_tokens,
            block_size_tokens=engine.block_size_tokens,
        )


@asynccontextmanager
async def rig(config: BatonConfig, name: Pool) -> AsyncIterator[Rig]:
    """The engine of one pool, ready. Starting vLLM blocks this event loop."""
    pool = config.prefill if name == "prefill" else config.decode
    security = config.security.model_copy(update={"cluster_secret": SecretStr(secrets.token_hex())})
    known = config.model_copy(update={"security": security})
    began_s = time.monotonic()
    async with AsyncExitStack() as stack:
        cores = stack.enter_context(await _cores(pool, name)).cores if pool.cores is not None else ()
        chosen = choose(known, pool, _surroundings(config.model.path, cores))
        kv = chosen.fingerprint()
        here, there = await _stores(stack, known, kv)
        engine = await _start(chosen, here.socket_name, name)
        stack.push_async_callback(engine.close)
        ready_s = time.monotonic()
        stores = await _connect(stack, known, kv, here, there)
        yield Rig(engine, chosen.kind, stores, kv.block_bytes // kv.block_size_tokens, ready_s - began_s)


async def _cores(pool: PoolConfig, name: Pool) -> CoreLease:
    try:
        return await CoreLease.take(pool.cores or 0)
    except ValueError as error:
        raise CannotProfile(f"{name}.cores: {error}") from error


def _surroundings(model: str, cores: "list[int] | tuple[()]") -> Surroundings:
    try:
        path = resolve(model)
        return Surroundings("profile", path, model_digest(path), cores)
    except ModelUnavailable as error:
        raise CannotProfile(f"model.path: {error}") from error


async def _stores(stack: AsyncExitStack, config: BatonConfig, kv: KvFingerprint) -> tuple[StoreProcess, StoreProcess]:
    arena_bytes = min(int(config.store.bytes), STORE_TOKENS * 2 * kv.block_bytes // kv.block_size_tokens)
    begun = []
    for _ in range(2):
        try:
            store = await asyncio.to_thread(
                StoreProcess, config.security.secret, kv.digest(), arena_bytes, STORE_START_S
            )
        except OSError as error:
            raise CannotProfile(f"store: {error}; lower store.bytes if shared memory is short") from error
        stack.callback(store.close)
        begun.append(store)
    return begun[0], begun[1]


async def _start(chosen: ChosenEngine, socket_name: str, name: Pool) -> StartedEngine:
    try:
        return await chosen.create(socket_name)
    except (BatonError, ValueError) as error:
        raise CannotProfile(
            f"{name}.engine: did not start: {error}\nIts own words are above; with {name}.engine.env "
            "VLLM_LOGGING_LEVEL=INFO there are more. A model that cannot be reached is model.path's: "
            "`baton model list`, or a folder of this machine"
        ) from error


async def _connect(
    stack: AsyncExitStack, config: BatonConfig, kv: KvFingerprint, here: StoreProcess, there: StoreProcess
) -> Stores:
    """The other store gets an arena of the same slots; nobody else attaches to it."""
    clients = []
    try:
        for store in (here, there):
            client = await AsyncStoreClient.connect(
                store.socket_name, kv.digest(), "profile", config.security.secret, config.timeouts.connect_s
            )
            stack.push_async_callback(client.close)
            clients.append(client)
        slot_bytes = (await clients[0].statistics()).slot_bytes
        stack.callback((await clients[1].attach(slot_bytes)).close)
    except KvTransferError as error:
        raise CannotProfile(f"store: {error}") from error
    return Stores(clients[0], clients[1], here.address, config.timeouts.handoff_s)
