"""A client that leaves, at whatever moment: nothing more is computed for it, and nothing of it is in others' way."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.coordinator.admission.line import LineSettings
from cluster.coordinator.admission.queue import AdmissionSettings
from cluster.coordinator.routing_choice import Routing, choose_routing
from cluster.dataplane.frames import Delta
from configs.schema import BatonConfig
from tests.faults.pools import BLOCK, PROMPT_TOKENS, Pools, pools
from tests.faults.store_process import over_quick_tcp
from tests.support.store_thread import running_store
from tests.support.two_nodes import Shape
from tests.unit.dataplane.peers import DEADLINE_S
from tests.unit.engines.simulated.bench import prompt_of

ARENA_BYTES = 8 * 1024 * 1024
CHUNK_TOKENS = 32
SLOW = {"max_batched_tokens": CHUNK_TOKENS, "decode_step_s": 0.1}
"""A prompt takes seven steps of a tenth of a second."""


class Client:
    """Reads an answer until it is told to leave."""

    def __init__(self, answer: AsyncIterator[Sequence[Delta]]) -> None:
        self.tokens = 0
        self._answer = answer
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for deltas in self._answer:
            self.tokens += sum(len(delta.token_ids) for delta in deltas)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        assert self._task.cancelled(), "it was answered"


class Computed:
    """What all engines have computed, counted from a moment on."""

    def __init__(self, cluster: Pools) -> None:
        self._cluster = cluster
        self._prompt_tokens, self._tokens = self._now()

    def check(self, tokens: int) -> None:
        """No more than the step that was running then, of which so many could be made."""
        now = self._now()
        assert now[0] - self._prompt_tokens <= CHUNK_TOKENS
        assert now[1] - self._tokens <= tokens

    def _now(self) -> tuple[float, float]:
        count = self._cluster.counted
        return count("computed_prompt_tokens"), count("tokens")


async def comes_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # engines and workers announce nothing of this
            await asyncio.sleep(0.005)


async def stored_blocks(cluster: Pools) -> int:
    """What the decode worker's store has."""
    return (await cluster.statistics(cluster.members[1].store)).committed_slots


@asynccontextmanager
async def slow_pair(model: Path, fingerprint: str) -> AsyncIterator[Pools]:
    """One prefill and one decode worker, each with a store of its own."""
    with (
        running_store(fingerprint, ARENA_BYTES, over_quick_tcp) as one,
        running_store(fingerprint, ARENA_BYTES, over_quick_tcp) as other,
    ):
        async with pools(model, [one], [other], **SLOW) as cluster:
            yield cluster


def queued(cluster: Pools) -> bool:
    prefill = cluster.members[0].worker.load()
    return prefill.waiting + prefill.running == 2


def prefilling(cluster: Pools) -> bool:
    return cluster.counted("computed_prompt_tokens") >= CHUNK_TOKENS


def held(cluster: Pools) -> bool:
    return cluster.members[1].worker.load().held == 1


def decoding(cluster: Pools) -> bool:
    return cluster.members[1].worker.load().counters.get("tokens", 0) >= 2


@pytest.mark.parametrize("moment", [prefilling, held, decoding], ids=lambda moment: moment.__name__)
async def test_who_leaves_is_computed_no_further(
    model: Path, fingerprint: str, moment: Callable[[Pools], bool]
) -> None:
    async with slow_pair(model, fingerprint) as cluster:
        client = Client(cluster.coordinator.generate(cluster.request(prompt_of(PROMPT_TOKENS), 100)))
        await comes_true(lambda: moment(cluster))
        computed = Computed(cluster)
        await client.leave()
        assert cluster.ledger.statistics().open_leases == 0
        await cluster.nothing_is_left()
        computed.check(tokens=1)


async def test_who_leaves_while_blocks_are_on_their_way_has_them_moved_no_further(
    model: Path, fingerprint: str
) -> None:
    async with slow_pair(model, fingerprint) as cluster:
        client = Client(cluster.coordinator.generate(cluster.request(prompt_of(PROMPT_TOKENS), 100)))
        async with asyncio.timeout(DEADLINE_S):
            while not (moved := await stored_blocks(cluster)):
                pass
        computed = Computed(cluster)
        await client.leave()
        await cluster.nothing_is_left()
        computed.check(tokens=0)
        assert await stored_blocks(cluster) <= moved + CHUNK_TOKENS // BLOCK


async def test_who_leaves_an_engines_queue_is_never_computed(model: Path, fingerprint: str) -> None:
    async with slow_pair(model, fingerprint) as cluster:
        first = Client(cluster.coordinator.generate(cluster.request(prompt_of(PROMPT_TOKENS, 1), 100)))
        second = Client(cluster.coordinator.generate(cluster.request(prompt_of(PROMPT_TOKENS, 2), 100)))
        await comes_true(lambda: queued(cluster))
        await second.leave()
        await comes_true(lambda: first.tokens > 0)
        assert cluster.counted("computed_prompt_tokens") < PROMPT_TOKENS + CHUNK_TOKENS
        await first.leave()
        await cluster.nothing_is_left()


async def test_who_leaves_the_line_was_never_sent_anywhere(model: Path, fingerprint: str) -> None:
    admission = AdmissionSettings(max_outputs=1, max_wait_s=None)
    with running_store(fingerprint, ARENA_BYTES) as store:
        async with pools(model, [store], [store], admission=admission, **SLOW) as cluster:
            first = Client(cluster.coordinator.generate(cluster.request(prompt_of(PROMPT_TOKENS, 1), 100)))
            second = Client(cluster.coordinator.generate(cluster.request(prompt_of(PROMPT_TOKENS, 2), 100)))
            await comes_true(lambda: cluster.coordinator.statistics().admission.waiting_requests == {0: 1})
            await second.leave()
            assert not cluster.coordinator.statistics().admission.waiting_requests
            await first.leave()
            await cluster.nothing_is_left()
            assert cluster.counted("legs_prefill", "legs_decode") == 2


LONG, LONG_TOKENS, SHORT_TOKENS = 8, 45_000, 100
H100 = {"prefill_tokens_per_s": 1 / 0.00015, "decode_step_s": 0.010, "decode_request_s": 5e-5}
ROOM = Shape(block_size=16, max_model_len=LONG_TOKENS + 1_000, device_blocks=LONG * LONG_TOKENS // 16 + 4_096)


def kv_aware(model: Path) -> Routing:
    """What a deployment of such engines routes by."""
    pool = {"engine": {"kind": "simulated", **H100}}
    return choose_routing(BatonConfig.model_validate({"model": {"path": str(model)}, "prefill": pool, "decode": pool}))


async def test_a_short_request_does_not_wait_for_eight_long_prompts_that_were_cancelled(
    model: Path, fingerprint: str
) -> None:
    """All eight are at the replicas: an hour's wait would be allowed."""
    admission = AdmissionSettings(max_wait_s=3_600.0, line=LineSettings(max_tokens=2 * LONG * LONG_TOKENS))
    took_s = []
    with (
        running_store(fingerprint, ARENA_BYTES, over_quick_tcp) as one,
        running_store(fingerprint, ARENA_BYTES, over_quick_tcp) as other,
    ):
        async with pools(model, [one], [other], ROOM, kv_aware(model), admission, **H100) as cluster:
            for attempt in range(3):
                prompts = [prompt_of(LONG_TOKENS, 10 * attempt + i) for i in range(LONG)]
                clients = [Client(cluster.coordinator.generate(cluster.request(each))) for each in prompts]
                await asyncio.sleep(0.4)
                assert cluster.coordinator.statistics().admission.in_flight == LONG
                await asyncio.gather(*(client.leave() for client in clients))
                assert cluster.ledger.statistics().open_leases == 0
                took_s.append(await first_token_s(cluster, prompt_of(SHORT_TOKENS, 1_000 + attempt)))
                await cluster.nothing_is_left()
    assert statistics.median(took_s) < 0.5


async def first_token_s(cluster: Pools, prompt: Sequence[int]) -> float:
    """Time to first token of a request, in seconds."""
    began = time.monotonic()
    answer = cluster.coordinator.generate(cluster.request(prompt))
    await anext(answer)
    took_s = time.monotonic() - began
    await answer.aclose()
    return took_s
