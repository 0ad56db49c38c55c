"""Stores and writers that die, stop or meet under load: every token is right, it is counted, nothing is held after."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.pools import PROMPT_BLOCKS, PROMPT_TOKENS, pools
from tests.faults.store_process import StoreProcess, over_quick_tcp
from tests.support.store_thread import running_store
from tests.unit.dataplane.peers import until
from tests.unit.engines.simulated.bench import prompt_of


@asynccontextmanager
async def store_process(fingerprint: str) -> AsyncIterator[StoreProcess]:
    """A store that is gone afterwards."""
    store = StoreProcess(fingerprint)
    try:
        await store.start()
        yield store
    finally:
        await store.kill()


async def test_a_store_killed_and_started_again_under_load_changes_no_token(model: Path, fingerprint: str) -> None:
    async with store_process(fingerprint) as store, pools(model, [store], [store], decode_step_s=0.002) as cluster:
        async with cluster.load() as load:
            await load.answered(20)
            await store.kill()
            await load.answered(20)
            await store.start()
            await cluster.stores_are_used()
            await load.answered(20)
        assert cluster.counted("store_lost") == 2
        assert cluster.counted("legs_failed_unavailable", "handoffs_failed") > 0
        await cluster.nothing_is_left()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_source_killed_or_stopped_while_it_sends_changes_no_token(
    model: Path, fingerprint: str, end: signal.Signals
) -> None:
    with running_store(fingerprint, transport=over_quick_tcp) as target:
        async with (
            store_process(fingerprint) as source,
            pools(model, [source], [target], decode_step_s=0.002) as cluster,
        ):
            async with cluster.load() as load:
                await load.answered(20)
                source.signal(end)
                await load.answered(20)
                if end is signal.SIGSTOP:
                    source.signal(signal.SIGCONT)
                else:
                    await source.kill()
                    await source.start()
                await cluster.stores_are_used()
                await load.answered(20)
            assert cluster.counted("handoffs_failed", "legs_failed_unavailable") > 0
            assert cluster.counted("handoffs_pulled_blocks") > 0
            await cluster.nothing_is_left()


async def test_two_engines_that_commit_the_same_blocks_at_once_store_them_once(model: Path, fingerprint: str) -> None:
    with running_store(fingerprint) as store:
        async with pools(model, [store] * 2, [store] * 2) as cluster:
            prompts = [prompt_of(PROMPT_TOKENS, number) for number in range(4)]
            for prompt in prompts:
                await cluster.ask_together(prompt, 8)
            computing = [m.engine.statistics().counters["computed_prompt_tokens"] for m in cluster.members[:2]]
            assert min(computing) >= PROMPT_TOKENS
            assert (await cluster.statistics(store)).committed_blocks == cluster.counted("saved_blocks")
            await cluster.nothing_is_left()


async def test_a_writer_that_dies_between_reserve_and_commit_costs_only_computing(
    model: Path, fingerprint: str
) -> None:
    prompt = prompt_of(PROMPT_TOKENS)
    keys = [str(number).encode() for number in range(PROMPT_BLOCKS)]
    with running_store(fingerprint) as store:
        async with pools(model, [], [store]) as cluster:
            with store.client() as writer:
                writer.announce("h", keys)
                assert None not in writer.reserve(keys).slots
                asking = asyncio.create_task(cluster.ask_decode(prompt, "h"))
                await until(lambda: cluster.members[0].worker.load().held == 1)
            await asking
            assert cluster.counted("handoffs_failed") == 1
            assert cluster.counted("recomputed_blocks_failed") == PROMPT_BLOCKS
            await cluster.nothing_is_left()
