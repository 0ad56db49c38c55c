"""Fuzzes the gateway: malformed and odd requests on every open route, then whether everything is as it was.

`python -m tests.fuzz.bodies --cases 10000 --seed 1`; with `--only N`, case N of that seed and its answer. A finding is
an answer of 5xx or none, a stream without an end, an error in the log, or anything that a request left behind.
"""

import argparse
import asyncio
import collections
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.fuzz.cases import POSTS_WITHOUT_BODY, READS, VALID, Case
from tests.fuzz.footprint import ErrorLog, Footprint
from tests.fuzz.http import Answer, send
from tests.fuzz.mutation import Mutator
from tests.fuzz.spoiling import spoiled
from tests.fuzz.subject import Subject, running_subject
from tests.fuzz.verdict import wrong

AT_ONCE = 8
BATCH = 200
WARM_UP = 400


@dataclass(slots=True)
class Result:
    """What a campaign saw."""

    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)

    def note(self, number: int, case: Case, answer: Answer) -> None:
        """Judge an answer."""
        self.statuses[str(answer.status or case.manner.value)] += 1
        self.slowest = max(self.slowest, (answer.seconds, number))
        fault = wrong(case, answer)
        if fault is not None:
            self.findings.append(f"case {number}: {fault}\n    {case}")


@dataclass(frozen=True, slots=True)
class Campaign:
    """All cases of a seed; each can be made by itself."""

    seed: int
    mutator: Mutator

    def case(self, number: int) -> Case:
        """One of them."""
        rng = random.Random(f"{self.seed} {number}")
        if rng.random() < 0.03:
            method = "GET" if rng.random() < 0.8 else "POST"
            return Case(method, rng.choice(READS + POSTS_WITHOUT_BODY), (), rng.choice((b"", b"{}", b"x" * 1000)))
        path, valid = rng.choice(VALID)
        return spoiled(path, self.mutator.mutated(path, {"model": "tiny", **valid}, rng), rng)

    async def run(self, subject: Subject, cases: int, log: ErrorLog) -> Result:
        """In batches; after each, good requests are answered and nothing is left."""
        result = Result()
        for first in range(0, cases, BATCH):
            numbers = iter(range(first, min(cases, first + BATCH)))
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._some(subject, numbers, result))
            result.findings += await after_batch(subject, first, log)
        return result

    async def _some(self, subject: Subject, numbers: "Sequence[int] | object", result: Result) -> None:
        for number in numbers:  # type: ignore[attr-defined]  # one iterator for all
            case = self.case(number)
            result.note(number, case, await send(subject.port, case))


async def after_batch(subject: Subject, first: int, log: ErrorLog) -> list[str]:
    """What is not as it should be when a batch is over."""
    batch = f"after the batch from case {first}"
    findings = [f"{batch}: {what} left: {count}" for what, count in (await subject.at_rest()).items()]
    for path, valid in VALID:
        answer = await send(subject.port, good(path, valid))
        if answer.status != 200 or not answer.whole:
            findings.append(f"{batch}: a good request to {path} got {answer.status}: {answer.body[:300]!r}")
    await subject.at_rest()
    return findings + [f"{batch}: logged {said}" for said in log.taken()]


def good(path: str, valid: Mapping[str, object]) -> Case:
    """A request that is answered."""
    body = json.dumps({"model": "tiny", **valid}).encode()
    return Case("POST", path, (("Content-Type", "application/json"),), body)


async def campaign_of(subject: Subject, seed: int) -> Campaign:
    """Fields come from what the gateway says of itself."""
    answer = await send(subject.port, Case("GET", "/openapi.json", (), b""))
    document = json.loads(answer.body)
    schemas = document["components"]["schemas"]
    fields: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        said = json.dumps(content)
        named = (schema for name, schema in schemas.items() if f'/{name}"' in said)
        fields[path] = sorted({member for schema in named for member in schema.get("properties", ())})
    return Campaign(seed, Mutator(fields))


async def main_async(args: argparse.Namespace) -> int:
    """Print what happened; how many findings there were."""
    with ErrorLog() as log:
        async with running_subject() as subject:
            campaign = await campaign_of(subject, args.seed)
            if args.only is not None:
                case = campaign.case(args.only)
                print(case, await send(subject.port, case), *log.taken(), sep="\n")
                return 0
            print(f"seed {args.seed}, {args.cases} requests", flush=True)
            await (await campaign_of(subject, args.seed + 1_000_000)).run(subject, WARM_UP, log)
            before, began = Footprint.now(), time.perf_counter()
            result = await campaign.run(subject, args.cases, log)
            seconds, after = time.perf_counter() - began, await Footprint.at_rest(before)
    result.findings += before.growth(after)
    report(result, args.seed, seconds)
    print(f"{before} then {after}")
    return len(result.findings)


def report(result: Result, seed: int, seconds: float) -> None:
    """Everything that was found, and what was not."""
    for finding in result.findings:
        print(finding)
    counts = ", ".join(f"{count} × {status}" for status, count in sorted(result.statuses.items()))
    print(f"seed {seed}: {result.statuses.total()} requests in {seconds:.0f} s: {counts}")
    print(f"slowest answer {result.slowest[0]:.2f} s (case {result.slowest[1]}); {len(result.findings)} findings")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="make this case alone and show its answer")
    return 1 if asyncio.run(main_async(parser.parse_args())) else 0


if __name__ == "__main__":
    sys.exit(main())
