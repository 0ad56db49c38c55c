"""Kills, stops and cuts each part of a service with real vLLM engines under load, one after another: `make chaos-real`.

Greedy answers are compared, token by token, with those that each prompt got alone before anything was disturbed.
Engines compute in float32 here: in bfloat16 vLLM's CPU kernels make other tokens in another batch, whether or not
anything breaks (`docs/decisions/identical-tokens.md`). The row "nothing" is the control: the same load, and no fault.
Each request has a salt of its own, so that its prompt is really computed, and the router is the one that always splits.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from cluster.models.fetch import resolve
from cluster.runtime.flags import serve_flags
from cluster.runtime.mark import current
from configs.schema import BatonConfig
from tests.benchmarks.machine import describe
from tests.chaos import rest
from tests.chaos.faults import Fault, Kill
from tests.chaos.load import Tally
from tests.chaos.parts import Part, Parts
from tests.chaos.real_faults import KillCore, SeverPool, StopCore, cores
from tests.chaos.requests import Request
from tests.chaos.stream import ask
from tests.support.prompts import lengths, prompt_of
from tests.support.serving import Served, config_of, two_nodes

ANSWER_TOKENS = 120
PROMPTS = 12
CLIENTS = 4
WHOLE_S, REST_S = 240.0, 20.0
"""What may pass until all workers are back, on a machine whose other cores are busy, and until nothing is held."""

STRIKE_AFTER_S = 1.5
GO_ON_S = 2.0
"""Seconds of load before a fault, and after everything is back."""


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, and which parts are new when it has been mended; none: nothing has to be replaced."""

    name: str
    fault: Fault | None
    replaced: Callable[[Parts], Sequence[Part]] = field(default=lambda _: ())


def _of(kind: str) -> Callable[[Parts], Sequence[Part]]:
    return lambda parts: parts.of(kind)


def _cores(pool: str) -> Callable[[Parts], Sequence[Part]]:
    return lambda parts: cores(parts, pool)


CASES: Mapping[str, Sequence[Case]] = {
    "1P+1D": (
        Case("nothing", None),
        Case("connection to prefill cut", SeverPool("prefill")),
        Case("connection to decode cut", SeverPool("decode")),
        Case("a store killed", Kill("store"), _of("store")),
        Case("Serve's controller killed", Kill("controller"), _of("controller")),
        Case("prefill engine core killed", KillCore("prefill"), _cores("prefill")),
        Case("prefill replica killed", Kill("prefill"), _of("prefill")),
        Case("prefill engine core stopped", StopCore("prefill"), _cores("prefill")),
    ),
    "1P+2D": (
        Case("nothing", None),
        Case("decode engine core killed", KillCore("decode"), _cores("decode")),
        Case("decode replica killed", Kill("decode"), _of("decode")),
        Case("decode engine core stopped", StopCore("decode"), _cores("decode")),
    ),
}


@dataclass(frozen=True, slots=True)
class Questions:
    """Greedy requests by number, over and over, and what answers each of them."""

    prompts: Sequence[list[int]]
    answers: list[list[int]] = field(default_factory=list)

    def __getitem__(self, number: int) -> Request:
        return Request(number, self.prompts[number % len(self.prompts)], ANSWER_TOKENS, None, None)

    def body(self, number: int, model: str) -> bytes:
        """As it is sent."""
        return msgspec.json.encode({**msgspec.json.decode(self[number].body(model)), "cache_salt": f"of {number}"})

    def right(self, number: int) -> list[int]:
        """The tokens of its answer."""
        return self.answers[number % len(self.answers)]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of the requests of one case. `recovery_s`: from the fault until everything was there again."""

    name: str
    tally: Tally
    recovery_s: float | None

    @property
    def holds(self) -> bool:
        """Nothing was noticed by anybody but time."""
        return self.recovery_s is not None and not self.tally.complaints and not self.tally.wrong

    def __str__(self) -> str:
        tally = self.tally
        recovery = "never" if self.recovery_s is None else f"{self.recovery_s:.1f} s"
        counts = f"{tally.asked:8} {len(tally.complaints):6} {len(tally.wrong):9}"
        return f"{self.name:30} {counts} {tally.longest_gap_s:10.1f} s {recovery:>9}"


HEAD = f"{'fault':30} {'requests':>8} {'failed':>6} {'differing':>9} {'longest gap':>12} {'recovery':>9}"


class Trial:
    """One running service, and what it answers undisturbed."""

    def __init__(self, served: Served, workers: int, questions: Questions) -> None:
        self._served = served
        self._workers = workers
        self._questions = questions
        self._parts = Parts(current())
        self._numbers = itertools.count()
        self._rng = random.Random(0)

    async def learn(self) -> None:
        """Ask each question once, alone."""
        await rest.whole(self._served, self._workers, WHOLE_S)
        for number in range(len(self._questions.prompts)):
            answer = await self._ask(number)
            assert not answer.complaint, answer.complaint
            self._questions.answers.append(answer.tokens)

    async def row(self, case: Case) -> Row:
        """Strike under load, and go on until everything is there again."""
        tally, over = Tally(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client(tally, over))
            await asyncio.sleep(STRIKE_AFTER_S)
            recovery_s = await self._strike(case)
            await asyncio.sleep(GO_ON_S)
            over.set()
        held = await rest.held(self._served, REST_S)
        if held:
            tally.complaints.append(f"still held: {held}")
        return Row(case.name, tally, recovery_s)

    async def _strike(self, case: Case) -> float | None:
        if case.fault is None:
            return 0.0
        before = set(case.replaced(self._parts))
        began = time.monotonic()
        await asyncio.to_thread(case.fault.strike, self._parts, self._rng)
        while len(set(case.replaced(self._parts)) - before) < bool(before):
            if time.monotonic() - began > WHOLE_S:
                return None
            await asyncio.sleep(0.2)
        try:
            await rest.whole(self._served, self._workers, WHOLE_S)
        except AssertionError:
            return None
        return time.monotonic() - began

    async def _client(self, tally: Tally, over: asyncio.Event) -> None:
        while not over.is_set():
            number = next(self._numbers)
            tally.judge(self._questions[number], await self._ask(number), self._questions.right(number))

    async def _ask(self, number: int) -> Any:
        url = httpx.URL(self._served.url)
        return await ask(url.host, url.port, self._questions.body(number, self._served.model), None)


def service(model: str, decodes: int, stall_s: float) -> BatonConfig:
    """One prefill worker on a node, decode workers on another, one core each as far as there are cores."""
    engine = config_of("laptop.yaml").prefill.engine.model_dump()
    engine["args"] |= {"dtype": "float32"}
    engine["env"] |= {"VLLM_LOGGING_LEVEL": "ERROR"}
    pools = {
        name: {"replicas": replicas, "engine": engine, "label_selector": {"node": node}}
        for name, replicas, node in (("prefill", 1, "a"), ("decode", decodes, "b"))
    }
    return config_of(
        "laptop.yaml",
        model={"path": model, "served_name": "model", "max_model_len": 2048},
        store={"bytes": "128MiB"},
        router={"policy": "least_work"},
        timeouts={"replica_s": WHOLE_S, "request_s": 2 * WHOLE_S},
        health={"stall_s": stall_s, "stall_steps": 20.0},
        **pools,
    )


async def trial(served: Served, workers: int, model: str, cases: Sequence[Case]) -> list[Row]:
    """The rows of a service, each told as it is there."""
    sizes = lengths(PROMPTS, 40, 1200)
    questions = Questions([prompt_of(model, tokens, number) for number, tokens in enumerate(sizes)])
    one = Trial(served, workers, questions)
    await one.learn()
    rows = []
    for case in cases:
        rows.append(await one.row(case))
        print(rows[-1], flush=True)
        for complaint in [*rows[-1].tally.complaints, *rows[-1].tally.wrong]:
            print(f"    {complaint}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(CASES), help="one of the two services")
    parser.add_argument("--faults", nargs="+", metavar="WORD", help="cases whose name holds one of these words")
    parser.add_argument("--model", default="tiny", help="of both services (smollm2: slower, more of it in flight)")
    parser.add_argument("--stall", type=float, default=8.0, help="health.stall_s; the default of a service is 30")
    options = parser.parse_args()
    model = str(resolve(options.model))
    asked = f"{CLIENTS} clients, {ANSWER_TOKENS} tokens an answer"
    print(f"{describe()}\nvLLM in float32, {options.model}, {asked}, stall_s {options.stall:g}", flush=True)
    rows: list[Row] = []
    with two_nodes(serve_flags()) as cluster:
        for name in [options.only] if options.only else CASES:
            chosen = [c for c in CASES[name] if not options.faults or any(word in c.name for word in options.faults)]
            decodes = int(name[-2])
            with cluster.serve(service(model, decodes, options.stall)) as served:
                print(f"\n{name}\n{HEAD}", flush=True)
                rows += asyncio.run(trial(served, 1 + decodes, model, chosen))
    sys.exit(not all(row.holds for row in rows))


if __name__ == "__main__":
    main()
