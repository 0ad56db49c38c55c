"""A prefill and a decode engine over one real store, as the engine suite uses them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from cluster.dataplane.frames import Delta, LegReport
from cluster.engines.engine import BlocksChanged, Engine, EngineRequest
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.protocol import HandoffEnded
from tests.contracts.engine_kind import EngineKind
from tests.support.store_thread import SECRET, StoreThread, running_store

DEADLINE_S = 20.0


def sampling(**fields: Any) -> bytes:
    """SamplingParams in MessagePack; a field not given has vLLM's default."""
    return msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, **fields})


@dataclass(slots=True)
class Answer:
    """A whole stream."""

    deltas: list[Delta] = field(default_factory=list)

    def of(self, index: int = 0) -> Delta:
        """One output, merged."""
        first, *rest = [msgspec.structs.replace(delta) for delta in self.deltas if delta.index == index]
        first.token_ids = list(first.token_ids)
        for delta in rest:
            first.absorb(delta)
        return first

    @property
    def tokens(self) -> list[int]:
        return self.of(0).token_ids

    @property
    def report(self) -> LegReport:
        (report,) = [delta.report for delta in self.deltas if delta.report is not None]
        return report


class EnginePair:
    """Both engines, their store, and prompts that none of them has seen."""

    def __init__(self, kind: EngineKind, store: StoreThread, prefill: Engine, decode: Engine) -> None:
        self.kind, self.store, self.prefill, self.decode = kind, store, prefill, decode
        self.events: list[BlocksChanged] = []  # of the prefill engine
        self._news = asyncio.Event()
        self._numbers = itertools.count()

    def prompt(self, tokens: int) -> list[int]:
        """A new one each time, of printable words only in so far as the vocabulary has them."""
        random = Random(next(self._numbers))
        return [random.randrange(300, self.kind.vocabulary) for _ in range(tokens)]

    async def ask(self, engine: Engine, prompt: Sequence[int], params: bytes = b"", **fields: Any) -> Answer:
        """The whole answer of one engine."""
        request = EngineRequest(f"test-{next(self._numbers)}", prompt, params or sampling(), **fields)
        async with asyncio.timeout(DEADLINE_S):
            return Answer([delta async for delta in engine.generate(request)])

    async def reference(self, prompt: Sequence[int], params: bytes = b"") -> Answer:
        """What the decode engine answers without any block of anybody: a salt of its own hides them all."""
        return await self.ask(self.decode, prompt, params, cache_salt=f"alone-{next(self._numbers)}")

    async def prefill_leg(self, prompt: Sequence[int]) -> HandoffEnded:
        """The prefill leg, and what the store then says about its hand-off."""
        handoff_id = f"handoff-{next(self._numbers)}"
        await self.ask(self.prefill, prompt, sampling(max_tokens=1), handoff_id=handoff_id)
        client = await AsyncStoreClient.connect(
            self.store.socket_name, self.store.fingerprint, "suite", SECRET, DEADLINE_S
        )
        try:
            return await client.await_handoff(handoff_id, None, DEADLINE_S)
        finally:
            await client.close()

    async def stored_hashes(self, prompt: Sequence[int]) -> list[bytes]:
        """The engine's hashes of the prompt's full blocks, from its events."""
        wanted = list(prompt[: len(prompt) // self.kind.block_size * self.kind.block_size])
        async with asyncio.timeout(DEADLINE_S):
            while (found := self._chain(wanted)) is None:
                self._news.clear()
                await self._news.wait()
        return found

    def learn(self, changes: Sequence[BlocksChanged]) -> None:
        """Events of the prefill engine have come."""
        self.events += changes
        self._news.set()

    def _chain(self, wanted: list[int]) -> list[bytes] | None:
        hashes: list[bytes] = []
        tokens: list[int] = []
        for change in self.events:
            if change.kind != "stored":
                continue
            if change.parent is None and list(change.token_ids) == wanted[: len(change.token_ids)]:
                hashes, tokens = list(change.hashes), list(change.token_ids)
            elif hashes and change.parent == hashes[-1]:
                hashes, tokens = [*hashes, *change.hashes], [*tokens, *change.token_ids]
            if tokens[: len(wanted)] == wanted:
                return hashes[: len(wanted) // self.kind.block_size]
        return None


@asynccontextmanager
async def engine_pair(kind: EngineKind) -> AsyncIterator[EnginePair]:
    """Everything is closed afterwards."""
    with running_store(kind.fingerprint()) as store:
        prefill = await kind.create(store.socket_name, SECRET, 0)
        try:
            decode = await kind.create(store.socket_name, SECRET, 1)
            try:
                async with _collecting(EnginePair(kind, store, prefill, decode)) as pair:
                    yield pair
            finally:
                await decode.close()
        finally:
            await prefill.close()


@asynccontextmanager
async def _collecting(pair: EnginePair) -> AsyncIterator[EnginePair]:
    async def collect() -> None:
        async for changes in pair.prefill.events():
            pair.learn(changes)

    collector = asyncio.create_task(collect())
    try:
        yield pair
    finally:
        collector.cancel()
        await asyncio.gather(collector, return_exceptions=True)
