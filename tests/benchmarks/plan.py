"""How good planned ratios are: the planner's choice against the best of all ratios, each simulated on the whole trace.

In virtual time, on `h100/llama-3-8b` (a roofline). Workloads: a recorded conversation at once, twice and three times
its speed, a recorded chat service, and three described ones that turn from long prompts to long answers or back; these
bring as many requests for each replica whatever their number. Only the seconds depend on the machine: those of the
planner are wall time in as many processes as there are cores, and the CPU time of these.
"""

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.cli.plan_processes import processes
from cluster.planning.outcome import Slo
from cluster.planning.planner.answer import Wish, answer
from cluster.planning.planner.question import Engine, Question
from cluster.planning.planner.topology import topologies
from cluster.planning.planner.trial import Ask, Trial, Window
from cluster.planning.synthetic import synthesize
from cluster.planning.trace import Trace
from cluster.planning.trace_files import read_trace
from cluster.rates import router_profile
from configs.profiles import named
from configs.workload import ArrivalsConfig, LengthsConfig, PhaseConfig, PrefixLevelConfig, WorkloadConfig
from tests.benchmarks import machine
from tests.benchmarks.routing import traces

PROFILE = "h100/llama-3-8b"
SLO = Slo(ttft_s=2.0, itl_s=0.025)
BLOCK_TOKENS = 512
GOAL_SHARE, GOAL_S = 0.98, 10.0
RECORDED = {
    "conversation 1x": ("mooncake_conversation.jsonl", 1.0),
    "conversation 2x": ("mooncake_conversation.jsonl", 2.0),
    "conversation 3x": ("mooncake_conversation.jsonl", 3.0),
    "azure chat": ("azure_2023_conv.csv", 1.0),
}
SHIFTS = ("to decode", "to prefill", "bursts")


@dataclass(frozen=True, slots=True)
class Row:
    """One workload on so many replicas. `planned` and `best` are simulated on the whole trace."""

    workload: str
    replicas: int
    planned: Trial
    best: Trial
    wall_s: float
    cpu_s: float

    @property
    def ratio(self) -> float:
        return self.planned.good / (self.best.good or 1)


def phase(duration_s: float, per_s: float, prompt: int, output: int, variation: float = 1.0) -> PhaseConfig:
    return PhaseConfig(
        duration_s=duration_s,
        arrivals=ArrivalsConfig(rate_per_s=per_s, variation=variation),
        prompt=LengthsConfig(mean_tokens=prompt, variation=0.8, least_tokens=64, most_tokens=32_000),
        output=LengthsConfig(mean_tokens=output, variation=0.8, least_tokens=2, most_tokens=4_000),
        prefixes=(PrefixLevelConfig(tokens=512, choices=8, skew=1.0),),
    )


def shift(name: str, replicas: int) -> Trace:
    """A described workload: 0.9 to 2.2 requests a second for each replica."""
    prefill, decode = (
        phase(120, 0.9 * replicas, 10_000, 60),
        phase(120, 1.1 * replicas, 800, 700),
    )
    phases = {
        "to decode": [prefill, decode],
        "to prefill": [decode, prefill],
        "bursts": [phase(60, 1.1 * replicas, 6_000, 150, 4.0), decode, phase(60, 2.2 * replicas, 2_000, 60, 4.0)],
    }
    return synthesize(WorkloadConfig(phases=phases[name], seed=7), BLOCK_TOKENS)


def workload(name: str, replicas: int, requests: int) -> Trace:
    """The first `requests` of it, at its speed."""
    if name in SHIFTS:
        return shift(name, replicas)
    file, speed = RECORDED[name]
    trace = read_trace(traces() / file, BLOCK_TOKENS)
    return trace.first(requests or len(trace)).faster(speed)


def measure(name: str, replicas: int, requests: int) -> Row:
    """Plan, then try every ratio."""
    profile = named(PROFILE)
    engine = Engine.profiled(router_profile(profile), profile.kv_tokens)
    trace = workload(name, replicas, requests)
    question = Question(trace, engine, SLO, itl_target_s=SLO.itl_s)
    cpu_s, began_s = children_s(), time.monotonic()
    with processes(question, lambda trial: None) as attempt:
        planned = answer(question, Wish(replicas), attempt, lambda text: None).best.topology
    wall_s, cpu_s = time.monotonic() - began_s, children_s() - cpu_s
    say(f"{name}, {replicas} replicas: planned {planned} in {wall_s:.1f} s ({cpu_s:.1f} s of CPU), now all ratios")
    with processes(question, lambda trial: None) as attempt:
        asks = [Ask(topology, (Window(0, len(trace)),)) for topology in topologies(replicas)]
        trials = {trial.topology: trial for trial in attempt(asks)}
    best = max(trials.values(), key=lambda trial: trial.good)
    return Row(name, replicas, trials[planned], best, wall_s, cpu_s)


def children_s() -> float:
    """CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"{'workload':18}{'replicas':>9}{'requests':>10}  {'planned':16}{'good':>8}  {'best of all':16}{'good':>8}"
        f"{'ratio':>8}{'wall s':>8}{'CPU s':>8}"
    ]
    lines += [
        f"{row.workload:18}{row.replicas:9}{row.best.ask.requests:10,}  {row.planned.topology!s:16}"
        f"{row.planned.share:8.1%}  {row.best.topology!s:16}{row.best.share:8.1%}{row.ratio:8.3f}{row.wall_s:8.1f}"
        f"{row.cpu_s:8.1f}"
        for row in rows
    ]
    least, longest = min(row.ratio for row in rows), max(row.wall_s for row in rows)
    return "\n".join(
        [
            *lines,
            f"least ratio {least:.3f} (goal {GOAL_SHARE}), longest plan {longest:.1f} s (goal {GOAL_S:g})",
        ]
    )


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=[*RECORDED, *SHIFTS], help="by name")
    parser.add_argument("--replicas", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--requests", type=int, default=0, help="of each recorded trace; 0: all")
    parser.add_argument("--quick", action="store_true", help="a smoke run: 8 replicas, 1,500 requests")
    options = parser.parse_args()
    if options.quick:
        options.replicas, options.requests = [8], 1_500
    print(machine.describe())
    print(
        f"engines: {PROFILE} (roofline); good: TTFT at most {SLO.ttft_s:g} s, mean ITL at most {1000 * SLO.itl_s:g} ms"
    )
    rows = []
    for replicas in options.replicas:
        for name in options.workloads:
            rows.append(measure(name, replicas, options.requests))
            say(table(rows[-1:]).splitlines()[1])
    print(table(rows))


if __name__ == "__main__":
    main()
