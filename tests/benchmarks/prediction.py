"""How far the router's predicted times to first token are off, on real vLLM: mixed lengths, new and repeated prefixes.

Serves the laptop preset and asks in random order for prompts of 20 to 1,800 tokens, a third of which continue an
earlier exchange. The first requests teach the router and are left out. The error
of a request is |predicted - actual| / actual, both from the decision on, as the gateway tells in `x-baton-route`.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from cluster.gateway.route_header import HEADER, parse
from cluster.models.fetch import resolve
from tests.benchmarks.machine import describe
from tests.benchmarks.spread import percentile
from tests.support.driver import Driver
from tests.support.prompts import prompt_of

GOAL = 0.15
TOKENS = 24
SHORTEST, LONGEST = 20, 1800
CONTEXT_LIMIT = 3000


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it was predicted and came."""

    prompt_tokens: int
    computed_tokens: int
    disaggregated: bool
    predicted_s: float
    actual_s: float

    @property
    def error(self) -> float:
        return abs(self.predicted_s - self.actual_s) / self.actual_s


class Client:
    """Asks one thing after another, and remembers what it may continue."""

    def __init__(self, http: httpx.AsyncClient, model_path: str, rng: random.Random) -> None:
        self._http = http
        self._model_path = model_path
        self._rng = rng
        self._contexts: list[list[int]] = []
        self._number = 0

    def prompt(self) -> list[int]:
        """A new prompt, or one time in three an earlier exchange with something new after it."""
        self._number += 1
        if self._contexts and self._rng.random() < 1 / 3:
            before = self._contexts.pop(self._rng.randrange(len(self._contexts)))
            return before + prompt_of(self._model_path, self._rng.randrange(10, 200), self._number)
        return prompt_of(self._model_path, self._rng.randrange(SHORTEST, LONGEST), self._number)

    async def ask(self) -> Asked:
        """One request to its end."""
        prompt = self.prompt()
        body = {"model": "smollm2", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
        answer = await self._http.post("/v1/completions", json=body)
        answer.raise_for_status()
        told = parse(answer.headers[HEADER.decode()])
        context = prompt + answer.json()["choices"][0]["token_ids"]
        if len(context) < CONTEXT_LIMIT:
            self._contexts.append(context)
        return Asked(
            prompt_tokens=len(prompt),
            computed_tokens=int(told["computed_tokens"]),
            disaggregated="prefill" in told,
            predicted_s=float(told["predicted_ttft_s"]),
            actual_s=float(told["ttft_s"]),
        )


@contextmanager
def served(url: str | None) -> Iterator[str]:
    """A deployment that tells its predictions: the one at `url`, else one of its own."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "serve.log"
        print("starting two engines", file=sys.stderr)
        with Driver(log, "configs/laptop.yaml", "--set", "gateway.explain_header=true") as driver:
            driver.await_up(300)
            yield driver.url
            driver.end(signal.SIGINT)


async def measure(url: str, options: argparse.Namespace, concurrency: int) -> list[Asked]:
    """All requests after the first `warmup`, `concurrency` at a time."""
    asked: list[Asked] = []
    left = options.requests + options.warmup
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        client = Client(http, resolve("smollm2"), random.Random(options.seed + concurrency))

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                asked.append(await client.ask())
                if len(asked) % 20 == 0:
                    print(f"{len(asked)} requests", file=sys.stderr)

        await asyncio.gather(*(work() for _ in range(concurrency)))
    return asked[options.warmup :]


def report(name: str, asked: Sequence[Asked]) -> str:
    """One line."""
    if not asked:
        return f"  {name}: none"
    errors = [each.error for each in asked]
    bias = sum(each.predicted_s for each in asked) / sum(each.actual_s for each in asked)
    return (
        f"  {name}: median {percentile(errors, 0.5):.1%}, p90 {percentile(errors, 0.9):.1%}, "
        f"predicted / actual in sum {bias:.2f}, n {len(errors)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a running deployment with gateway.explain_header; default: start one")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--json", type=Path, help="keep every request here")
    options = parser.parse_args()
    if options.quick:
        options.requests, options.warmup, options.concurrency = 20, 10, [1]
    rounds = {}
    with served(options.url) as url:
        for concurrency in options.concurrency:
            rounds[concurrency] = asyncio.run(measure(url, options, concurrency))
    print(describe())
    print(f"error of the predicted time to first token (goal: median at most {GOAL:.0%})")
    for concurrency, asked in rounds.items():
        print(report(f"{concurrency} at a time", asked))
        print(report("  computed by decode", [each for each in asked if not each.disaggregated]))
        print(report("  computed by prefill", [each for each in asked if each.disaggregated]))
    if options.json is not None:
        options.json.write_text(json.dumps({n: [asdict(each) for each in asked] for n, asked in rounds.items()}))


if __name__ == "__main__":
    main()
