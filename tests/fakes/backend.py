"""A `Backend` that answers from a script: deterministic, at once or when a test lets it, failing where told to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Delta, PositionLogprobs, TokenLogprob
from cluster.errors import BatonError


@dataclass(slots=True)
class Script:
    """What a request is answered with: one delta per piece, for each output.

    `gate` holds the answer back before piece number `gate_before`; `failure` is raised before piece number
    `fail_before`.
    """

    pieces: Sequence[str] = ("Hello", ", ", "world", "!")
    finish_reason: str = "stop"
    stop_reason: int | str | None = None
    cached_tokens: int = 3
    gate: asyncio.Event | None = None
    gate_before: int = 0
    failure: BaseException | None = None
    fail_before: int = 0


@dataclass(slots=True)
class FakeBackend:
    """Keeps what was asked. Invariant: `open` holds exactly the requests whose iterator has not ended."""

    script: Callable[[GenerationRequest], Script] = field(default=lambda request: Script())
    refusal: BatonError | None = None
    illness: BatonError | None = None
    requests: list[GenerationRequest] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def admit(self, outputs: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def check_health(self) -> None:
        if self.illness is not None:
            raise self.illness

    async def opened(self, count: int) -> None:
        """Return when `count` requests have begun."""
        while len(self.requests) < count:
            self.started.clear()
            await self.started.wait()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Sequence[Delta]]:
        self.requests.append(request)
        self.open.add(request.request_id)
        self.started.set()
        self.idle.clear()
        try:
            async for step in self._steps(request, self.script(request)):
                yield step
        finally:
            self.open.discard(request.request_id)
            if not self.open:
                self.idle.set()

    async def _steps(self, request: GenerationRequest, script: Script) -> AsyncIterator[Sequence[Delta]]:
        sampling = msgspec.msgpack.decode(request.sampling)
        count = sampling.get("logprobs", len(sampling.get("logprob_token_ids", ())) or None)
        pieces = script.pieces[: request.max_tokens]
        reason = script.finish_reason if len(pieces) == len(script.pieces) else "length"
        for number, piece in enumerate(pieces):
            if script.gate is not None and number == script.gate_before:
                await script.gate.wait()
            if script.failure is not None and number == script.fail_before:
                raise script.failure
            last = number == len(pieces) - 1
            yield [
                Delta(
                    index=index,
                    token_ids=[40 + number],
                    text=piece,
                    finish_reason=reason if last else None,
                    stop_reason=script.stop_reason if last else None,
                    logprobs=[candidates(40 + number, piece, count)] if count is not None else None,
                    cumulative_logprob=-0.5 * (number + 1) if count is not None else None,
                    num_cached_tokens=script.cached_tokens,
                    prompt_logprobs=prompt_logprobs(request.token_ids) if _wants_prompt(sampling, number) else None,
                )
                for index in range(request.outputs)
            ]


def _wants_prompt(sampling: dict[str, object], number: int) -> bool:
    return number == 0 and "prompt_logprobs" in sampling


def candidates(token_id: int, text: str, count: int) -> PositionLogprobs:
    """The sampled token and `count` - 1 runners-up."""
    return [TokenLogprob(token_id + i, -0.5 - i, i + 1, text if i == 0 else f"alt{i}") for i in range(max(count, 1))]


def prompt_logprobs(token_ids: Iterable[int]) -> list[PositionLogprobs | None]:
    """One candidate for each position but the first."""
    return [None, *([TokenLogprob(t, -1.0, 1, f"<{t}>")] for t in list(token_ids)[1:])]
