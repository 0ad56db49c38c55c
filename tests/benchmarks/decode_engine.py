"""One real engine in a process of its own, which decodes a batch for every line on its standard input.

`baton`: our `VllmEngine`, connector attached, KV events on, joined to a store; `plain`: vLLM's `AsyncLLM` with the same
arguments and nothing of ours. Both on the same core. Answers are JSON lines: `{"fingerprint"}` (then waits for a line,
so that the store can be started), `{"ready"}`, and for each round `{"tokens", "decode_s", "cpu_s"}`.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil

from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_engine import VllmEngine, kv_fingerprint
from cluster.engines.vllm_settings import VllmEngineSettings

PROMPT_TOKENS = 32
VOCABULARY = 1_500  # of the prompts; every model has as many
MAX_MODEL_LEN = 2048
ARGS = {"block_size": 32, "max_num_batched_tokens": 256, "max_num_seqs": 32, "enforce_eager": True}
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "TORCHDYNAMO_DISABLE": "1"}

Generate = Callable[[int, list[int]], AsyncIterator[int]]  # request number and prompt to counts of new tokens


@dataclass(frozen=True, slots=True)
class Running:
    """An engine that is up. `close` ends its processes in order, which gives its shared memory back."""

    generate: Generate
    close: Callable[[], Awaitable[None]]


def settings_of(options: argparse.Namespace) -> VllmEngineSettings:
    """The same arguments for both engines."""
    return VllmEngineSettings(
        model=options.model,
        store_socket=options.store_socket,
        secret=options.secret.encode(),
        args=ARGS,
        env=ENV,
        cores=[options.core],
        max_model_len=MAX_MODEL_LEN,
    )


def sampling(tokens: int) -> Any:
    """Greedy, exactly `tokens` tokens, as deltas."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, output_kind=RequestOutputKind.DELTA)


async def start_baton(options: argparse.Namespace) -> Running:
    """Our engine, once its store is up."""
    settings = settings_of(options)
    say(fingerprint=kv_fingerprint(settings).digest())
    await asyncio.to_thread(sys.stdin.readline)
    engine = await VllmEngine.create(settings)
    encoded = msgspec.msgpack.encode(sampling(options.tokens))

    async def generate(number: int, prompt: list[int]) -> AsyncIterator[int]:
        async for delta in engine.generate(EngineRequest(f"r{number}", prompt, encoded)):
            yield len(delta.token_ids)

    return Running(generate, engine.close)


async def start_plain(options: argparse.Namespace) -> Running:
    """vLLM alone."""
    settings = settings_of(options)
    settings.apply_environment()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.inputs.engine import tokens_input
    from vllm.v1.engine.async_llm import AsyncLLM

    args: Any = ARGS
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(model=settings.model, max_model_len=MAX_MODEL_LEN, disable_log_stats=True, **args)
    )

    async def generate(number: int, prompt: list[int]) -> AsyncIterator[int]:
        async for output in engine.generate(tokens_input(prompt), sampling(options.tokens), f"r{number}"):
            yield len(output.outputs[0].token_ids)

    async def close() -> None:
        await asyncio.to_thread(engine.shutdown)

    return Running(generate, close)


class Batch:
    """Decodes one batch after another. Only the time in which all streams decode is measured."""

    def __init__(self, generate: Generate, streams: int) -> None:
        self._generate = generate
        self._streams = streams
        self._number = 0

    async def run(self) -> dict[str, float]:
        """One batch of new prompts: tokens and seconds from the last first token on."""
        self._waiting = self._streams
        self._tokens = 0
        self._began = 0.0
        before_s = family_cpu_s()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._streams):
                self._number += 1
                group.create_task(self._stream(self._number))
        return {
            "tokens": self._tokens,
            "decode_s": time.perf_counter() - self._began,
            "cpu_s": family_cpu_s() - before_s,
        }

    async def _stream(self, number: int) -> None:
        prompt = [100 + (number * 131 + i * 17) % VOCABULARY for i in range(PROMPT_TOKENS)]
        first = True
        async for count in self._generate(number, prompt):
            if first:
                first = False
                self._waiting -= 1
                if not self._waiting:
                    self._began = time.perf_counter()
            elif not self._waiting:
                self._tokens += count


def family_cpu_s() -> float:
    """CPU seconds of this process and all it has started."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    times = [process.cpu_times() for process in family]
    return sum(t.user + t.system for t in times)


def say(**facts: object) -> None:
    """One JSON line to whoever started this."""
    print(json.dumps(facts), flush=True)


async def serve(options: argparse.Namespace) -> None:
    """A batch for each line until the input ends."""
    engine = await (start_baton if options.kind == "baton" else start_plain)(options)
    try:
        batch = Batch(engine.generate, options.streams)
        await batch.run()
        say(ready=os.getpid())
        while await asyncio.to_thread(sys.stdin.readline):
            say(**await batch.run())
    finally:
        await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["baton", "plain"], required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--store-socket", default="")
    parser.add_argument("--secret", default="")
    try:
        asyncio.run(serve(parser.parse_args()))
    except BaseException:
        traceback.print_exc()
    end_session()


def end_session() -> None:
    """End this process and what vLLM has started: its core outlives its parent. Not when a terminal started us."""
    if os.getsid(0) == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
