"""vLLM's own API server app over the fake engine, all in this process: what our gateway is compared with.

Tokens pass through vLLM's own `RequestOutputCollector`, which merges what waits, as `AsyncLLM` does. vLLM is imported
here only.
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import uvloop
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.engine.protocol import EngineClient
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.renderers import renderer_from_config
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import RequestOutputCollector

from tests.benchmarks.fake_engine import TOKEN_ID, TOKEN_TEXT, Emit, FakeEngine
from tests.benchmarks.targets.web import AnnouncingServer

MODEL_NAME = "m"


def _outputs(collector: RequestOutputCollector, request_id: str, prompt: list[int], params: SamplingParams) -> Emit:
    """Turns tokens into what vLLM's output processor puts into the collector: deltas, or one final whole output."""
    made = 0

    def emit(count: int, last: bool) -> None:
        nonlocal made
        made += count
        delta = params.output_kind is RequestOutputKind.DELTA
        if not delta and not last:
            return
        tokens = count if delta else made
        output = CompletionOutput(
            0, TOKEN_TEXT * tokens, [TOKEN_ID] * tokens, None, None, finish_reason="length" if last else None
        )
        collector.put(RequestOutput(request_id, None, prompt, None, [output], last, num_cached_tokens=0))

    return emit


class FakeEngineClient(EngineClient):  # type: ignore[misc]  # vLLM is untyped here
    """The part of vLLM's engine client that text generation uses."""

    is_running = True
    is_stopped = False
    errored = False
    dead_error = RuntimeError("the fake engine does not die")

    def __init__(self, vllm_config: Any, engine: FakeEngine) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.renderer = renderer_from_config(vllm_config)
        self.input_processor = InputProcessor(vllm_config, self.renderer)
        self._engine = engine

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **_: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """The request's outputs, merged when the consumer is slower than the engine."""
        collector = RequestOutputCollector(sampling_params.output_kind, request_id)
        emit = _outputs(collector, request_id, prompt["prompt_token_ids"], sampling_params)
        run = self._engine.start(sampling_params.max_tokens or 16, emit)
        try:
            finished = False
            while not finished:
                output = collector.get_nowait() or await collector.get()
                finished = output.finished
                yield output
        finally:
            self._engine.cancel(run)

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    async def is_tracing_enabled(self) -> bool:
        return False

    async def do_log_stats(self) -> None:
        """Nothing to log."""

    async def check_health(self) -> None:
        """Always healthy."""


async def _unused(self: FakeEngineClient, *_: Any, **__: Any) -> None:
    raise NotImplementedError("not part of text generation")


for _name in set(EngineClient.__abstractmethods__) - set(FakeEngineClient.__dict__):
    setattr(FakeEngineClient, _name, _unused)
FakeEngineClient.__abstractmethods__ = frozenset()


async def build(model: str, engine: FakeEngine) -> Any:
    """vLLM's app with its own defaults, over the fake engine."""
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(
        [model, "--served-model-name", MODEL_NAME, "--disable-uvicorn-access-log"]
    )
    args.model = model
    validate_parsed_serve_args(args)
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    app = build_app(args, ("generate",), config.model_config)
    await init_app_state(FakeEngineClient(config, engine), app.state, args, ("generate",))
    app.state.server = None
    return app


async def serve(model: str, port: int, step_s: float) -> None:
    engine = FakeEngine(step_s)
    app = await build(model, engine)
    async with asyncio.TaskGroup() as group:
        stepping = group.create_task(engine.serve())
        await AnnouncingServer("vllm-app", app, port).serve()
        stepping.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-s", type=float, default=0.0)
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        uvloop.run(serve(options.model, options.port, options.step_s))


if __name__ == "__main__":
    main()
