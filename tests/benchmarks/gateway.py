"""What the gateway costs: the same fake engine behind ours, vLLM's own app, a Serve stream and Dynamo's frontend.

All targets are up at once and take turns, round by round, in an order that rotates, so that what else happens on the
machine hits all of them. Each round measures every workload. Printed: medians over rounds with their range, the ratio
to vLLM's own app taken round by round, and the CPU time of the process that does the gateway's work.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cluster.models.fetch import resolve
from tests.benchmarks.load import Plan, Result
from tests.benchmarks.report import Measured, Measurements, as_json_lines, as_text
from tests.benchmarks.targets.catalogue import TARGETS, TargetKind
from tests.benchmarks.targets.process import DidNotStart, TargetProcess, Up, cpu_s
from tests.benchmarks.workloads import PROMPT_TOKENS, Workload, workloads

START_DEADLINE_S = 180.0
WARM_UP_S = 0.5
FIRST_PORT = 18_710
ROUNDS_APART = 1_000_000  # prompt numbers of one round


@dataclass(frozen=True, slots=True)
class Target:
    """A target that is up."""

    kind: TargetKind
    up: Up


def main() -> None:
    options = parse()
    model = resolve(options.model, lambda progress: say(f"model: {progress}"))
    loads = [w for w in workloads(model, 10 if options.quick else options.ttft_requests) if w.name in options.workloads]
    with running(options, model) as targets:
        for target in targets:
            check(target)
        say("warming up")
        for target in targets:
            for load in loads:
                measure(target, load, WARM_UP_S, seed=0)
        measurements = run_rounds(targets, loads, options.rounds, options.seconds)
    print(as_text(measurements, [target.kind for target in targets], loads))
    if options.json:
        options.json.write_text(as_json_lines(measurements))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="folder or name; only its tokenizer and config are used")
    parser.add_argument("--targets", nargs="+", choices=[k.name for k in TARGETS], default=[k.name for k in TARGETS])
    parser.add_argument("--workloads", nargs="+", default=["unary", "stream", "ttft-fresh", "ttft-kept"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each throughput workload in each round")
    parser.add_argument("--ttft-requests", type=int, default=50, help="in each round")
    parser.add_argument("--step-s", type=float, default=0.0, help="pace of the fake engine; 0: at once")
    parser.add_argument("--json", type=Path, help="also write every round's raw figures there")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.5
    return options


def say(line: str) -> None:
    """Progress; the report alone goes to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


@contextmanager
def running(options: argparse.Namespace, model: str) -> Iterator[list[Target]]:
    """The chosen targets, up, started one after another. One that does not start is named and left out."""
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gateway-")))
        targets: list[Target] = []
        for number, (module, kinds) in enumerate(by_module(options.targets).items()):
            arguments = ["--model", model, "--port", str(FIRST_PORT + number), "--step-s", str(options.step_s)]
            process = TargetProcess(module, arguments, logs / f"{number}.log")
            stack.callback(process.stop)
            targets += started(process, kinds)
        yield targets
        say("stopping the targets")


def by_module(names: Sequence[str]) -> dict[str, list[TargetKind]]:
    """The chosen targets that can be started, by the process that starts them."""
    modules: dict[str, list[TargetKind]] = defaultdict(list)
    for kind in TARGETS:
        reason = kind.missing() if kind.name in names else ""
        if reason:
            say(f"{kind.name}: left out: {reason}")
        elif kind.name in names:
            modules[kind.module].append(kind)
    return modules


def started(process: TargetProcess, kinds: Sequence[TargetKind]) -> list[Target]:
    """Those of `kinds` that the process announces."""
    targets: list[Target] = []
    try:
        while len(targets) < len(kinds):
            up = process.wait_until_up(START_DEADLINE_S)
            targets += [Target(kind, up) for kind in kinds if kind.name == up.name]
            say(f"{up.name}: up on port {up.port}")
    except DidNotStart as error:
        say(f"{', '.join(kind.name for kind in kinds[len(targets) :])}: left out: {error}")
    return targets


def check(target: Target) -> None:
    """That the target really tokenises the prompt and gives as many tokens as were asked for."""
    if not target.kind.validates:
        return
    prompt = " ".join(["water"] * 100)
    body = {"model": "m", "prompt": prompt, "max_tokens": 7, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{target.up.port}{target.kind.path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        usage = json.load(reply)["usage"]
    if usage["completion_tokens"] != 7 or not 90 <= usage["prompt_tokens"] <= PROMPT_TOKENS:
        raise RuntimeError(f"{target.kind.name} does not do the same work as the others: {usage}")


def run_rounds(targets: Sequence[Target], loads: Sequence[Workload], rounds: int, seconds: float) -> Measurements:
    """Every workload on every target, `rounds` times, targets taking turns."""
    measurements: Measurements = defaultdict(list)
    for number in range(rounds):
        shift = number % len(targets)
        for load in loads:
            for target in [*targets[shift:], *targets[:shift]]:
                measured = measure(target, load, seconds, seed=(number + 1) * ROUNDS_APART)
                measurements[target.kind.name, load.name].append(measured)
                figures = ", ".join(f"{f.name} {f.read(measured.result):.4g}" for f in load.figures)
                say(f"round {number + 1}/{rounds} {load.name} {target.kind.name}: {figures}")
    return measurements


def measure(target: Target, load: Workload, seconds: float, seed: int) -> Measured:
    """One round of one workload, from a load process of its own."""
    within_s = seconds if load.requests is None else 10 * seconds
    plan = load.plan(target.up.port, target.kind.path, "m", within_s, seed)
    before_s = cpu_s(target.up.pids)
    result = offer(plan)
    return Measured(result, cpu_s(target.up.pids) - before_s)


def offer(plan: Plan) -> Result:
    """Run the load generator; its own error when it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.load", msgspec.json.encode(plan).decode()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=plan.seconds + 60)
    if done.returncode:
        raise RuntimeError(f"the load generator failed:\n{done.stderr[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Result)


if __name__ == "__main__":
    main()
