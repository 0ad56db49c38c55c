"""The four workloads every target gets, and what is read off each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.load import Plan, Result
from tests.benchmarks.prompts import prompt_of
from tests.benchmarks.spread import percentile

PROMPT_TOKENS = 1024
NUMBER_TOKENS = 8  # what the number in front of each prompt may take
SHORT_PROMPT_TOKENS = 32
STREAM_TOKENS = 64
UNARY_TOKENS = 16
CONCURRENCY = 16
TTFT_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a result; `better` says which way is good."""

    name: str
    unit: str
    read: Callable[[Result], float]
    better: str = "higher"


@dataclass(frozen=True, slots=True)
class Workload:
    """What is sent, without the address; `work` is how many units (`per`) a result holds, for CPU a unit."""

    name: str
    about: str
    prompt: str
    max_tokens: int
    stream: bool
    concurrency: int
    figures: Sequence[Figure]
    per: str
    work: Callable[[Result], float]
    requests: int | None = None
    fresh: bool = False

    def plan(self, port: int, path: str, model: str, seconds: float, seed: int) -> Plan:
        """For one round against one target."""
        return Plan(
            port=port,
            path=path,
            model=model,
            prompt=self.prompt,
            max_tokens=self.max_tokens,
            stream=self.stream,
            concurrency=self.concurrency,
            seconds=seconds,
            requests=self.requests,
            fresh=self.fresh,
            seed=seed,
        )


def workloads(model: str, ttft_requests: int = TTFT_REQUESTS) -> list[Workload]:
    """All of them, with prompts sized for a model folder."""
    long, short = (prompt_of(n - NUMBER_TOKENS, model) for n in (PROMPT_TOKENS, SHORT_PROMPT_TOKENS))
    return [
        Workload(
            "unary",
            f"{PROMPT_TOKENS}-token prompts, {UNARY_TOKENS} tokens answered whole, concurrency {CONCURRENCY}",
            long,
            UNARY_TOKENS,
            False,
            CONCURRENCY,
            [Figure("requests/s", "1/s", _requests_per_s)],
            "request",
            _replies,
        ),
        Workload(
            "stream",
            f"{SHORT_PROMPT_TOKENS}-token prompts, {STREAM_TOKENS} tokens streamed, concurrency {CONCURRENCY}",
            short,
            STREAM_TOKENS,
            True,
            CONCURRENCY,
            [
                Figure("tokens/s", "1/s", _streamed_tokens_per_s),
                Figure("tokens/event", "", _tokens_per_event, "neither"),
            ],
            "token",
            lambda result: result.replies * STREAM_TOKENS,
        ),
        _ttft("fresh", "a new connection for each request", long, ttft_requests, fresh=True),
        _ttft("kept", "one kept-alive connection", long, ttft_requests, fresh=False),
    ]


def _ttft(name: str, about: str, prompt: str, requests: int, fresh: bool) -> Workload:
    return Workload(
        f"ttft-{name}",
        f"time to first token, {PROMPT_TOKENS}-token prompts, {UNARY_TOKENS} streamed, one at a time, {about}",
        prompt,
        UNARY_TOKENS,
        True,
        1,
        [
            Figure("p50 ms", "ms", lambda result: 1e3 * percentile(result.first_s, 0.5), "lower"),
            Figure("p99 ms", "ms", lambda result: 1e3 * percentile(result.first_s, 0.99), "lower"),
        ],
        "request",
        _replies,
        requests=requests,
        fresh=fresh,
    )


def _replies(result: Result) -> float:
    return result.replies


def _requests_per_s(result: Result) -> float:
    return result.replies / result.elapsed_s


def _streamed_tokens_per_s(result: Result) -> float:
    return result.replies * STREAM_TOKENS / result.elapsed_s


def _tokens_per_event(result: Result) -> float:
    return result.replies * STREAM_TOKENS / result.events
