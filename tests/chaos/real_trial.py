"""A service with real engines under a load whose every answer is known, and what becomes of it when something breaks.

Greedy answers are compared, token by token, with those that each prompt got alone before anything was disturbed.
Engines compute in float32 here: in bfloat16 vLLM's CPU kernels make other tokens in another batch, whether or not
anything breaks (`docs/decisions/identical-tokens.md`). Each request has a salt of its own, so that its prompt is really
computed, and the router is the one that always splits.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx
import msgspec

from cluster.runtime.mark import current
from configs.schema import BatonConfig
from tests.chaos import rest
from tests.chaos.faults import Fault
from tests.chaos.load import Tally
from tests.chaos.parts import Part, Parts
from tests.chaos.requests import Request
from tests.chaos.stream import Answer, ask
from tests.support.prompts import lengths, prompt_of
from tests.support.serving import Served, config_of

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
    """What became of the requests of one case. `resumed` went on elsewhere after their first token.

    `recovery_s`: from the fault until everything was there again; None when that was never.
    """

    name: str
    tally: Tally
    resumed: int
    recovery_s: float | None

    @property
    def holds(self) -> bool:
        """Nothing was noticed by anybody but time."""
        return self.recovery_s is not None and not self.tally.complaints and not self.tally.wrong

    def __str__(self) -> str:
        tally = self.tally
        recovery = "never" if self.recovery_s is None else f"{self.recovery_s:.1f} s"
        counts = f"{tally.asked:8} {len(tally.complaints):6} {len(tally.wrong):9} {self.resumed:7}"
        longest_s = max(tally.longest_gap_s, *tally.first_s)
        return f"{self.name:30} {counts} {longest_s:10.1f} s {recovery:>9}"


HEAD = f"{'fault':30} requests failed differing resumed {'longest wait':>12} {'recovery':>9}"


class Trial:
    """One running service, and what it answers undisturbed."""

    def __init__(self, served: Served, workers: int, questions: Questions) -> None:
        self._served = served
        self._workers = workers
        self._questions = questions
        self._parts = Parts(current())
        self._numbers = itertools.count(len(questions.prompts))
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
        tally, over, resumed = Tally(), asyncio.Event(), self._resumed()
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
        return Row(case.name, tally, self._resumed() - resumed, recovery_s)

    def _resumed(self) -> int:
        return int(self._served.metric("baton_resumed_total"))

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

    async def _ask(self, number: int) -> Answer:
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
