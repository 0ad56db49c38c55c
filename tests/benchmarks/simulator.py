"""How fast clusters are simulated: our simulator beside NVIDIA Dynamo's offline replay, and a fleet of a thousand.

Both read the same trace file and simulate all of it, with their own routers, on eight workers of the same capacities
and step times (`routing.py`); theirs is written in Rust and keeps sums only here. Reading is in the times, starting a
process and loading what is compiled are not. Rounds alternate. The thousand replicas run in a process of their own,
whose peak memory is printed with the time.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cluster.planning.gateway import Gateway
from cluster.planning.settings import split
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace, TraceRequest
from cluster.planning.trace_files import read_mooncake
from tests.benchmarks import machine
from tests.benchmarks.routing import TRACE, first_lines, say, traces
from tests.benchmarks.routing_dynamo import Replay, ReplayFailed, replay
from tests.benchmarks.routing_policies import POLICIES
from tests.benchmarks.routing_rows import BLOCK_TOKENS, DEVICE_BLOCKS, FREE, SEED, SLO, Topology, engine, profile
from tests.benchmarks.spread import ratios, show, spread
from tests.benchmarks.targets import dynamo

TOPOLOGIES = (Topology(0, 8), Topology(5, 3))
QUICK_REQUESTS = 1_500
WARM_REQUESTS = 200

REPLICAS, REQUESTS = 1_000, 100_000
GOAL_S, GOAL_BYTES = 300.0, 4 * 2**30


@dataclass(frozen=True, slots=True)
class Timed:
    """One simulation: seconds on the clock and of CPU, and how many requests were good."""

    wall_s: float
    cpu_s: float
    requests: int
    good: int


def simulated(topology: Topology, trace: Trace) -> Timed:
    """Ours, from a trace that was read."""
    wall_s, cpu_s = time.monotonic(), time.process_time()
    [ours] = [policy for policy in POLICIES if policy.name == "ours"]
    gateway = Gateway(0, ours.mind(profile(FREE)), random.Random(SEED))
    cluster = split(topology.prefill, topology.decode, engine(FREE))
    summary = Simulation(cluster, [gateway], trace).run().summary(SLO)
    return Timed(time.monotonic() - wall_s, time.process_time() - cpu_s, summary.finished, summary.good)


def from_file(topology: Topology, file: Path) -> Timed:
    """Ours, reading included."""
    wall_s, cpu_s = time.monotonic(), time.process_time()
    trace = read_mooncake(file, BLOCK_TOKENS)
    wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
    timed = simulated(topology, trace)
    return Timed(timed.wall_s + wall_s, timed.cpu_s + cpu_s, timed.requests, timed.good)


def replayed(topology: Topology, file: Path) -> Timed:
    """Dynamo's. Raises `ReplayFailed`."""
    done = replay(
        Replay(
            trace=str(file),
            mode="kv_router",
            prefill=topology.prefill,
            decode=topology.decode,
            speed=1.0,
            blocks=DEVICE_BLOCKS,
            block_size=BLOCK_TOKENS,
            ttft_ms=1000 * SLO.ttft_s,
            itl_ms=1000 * SLO.itl_s,
            bytes_per_token=0,
            transfer_bytes_per_s=25e9,
            per_request=False,
        )
    )
    return Timed(done.wall_s, done.cpu_s, done.requests, done.good)


def compare(topology: Topology, file: Path, rounds: int) -> str:
    """Lines about one topology."""
    ours, theirs = list[Timed](), list[Timed]()
    for number in range(rounds):
        ours.append(from_file(topology, file))
        said = f"{topology}, round {number + 1}: ours {ours[-1].wall_s:.1f} s ({ours[-1].cpu_s:.1f} of CPU)"
        if dynamo.installed():
            theirs.append(replayed(topology, file))
            said += f", Dynamo's {theirs[-1].wall_s:.1f} s ({theirs[-1].cpu_s:.1f} of CPU)"
        say(said)
    return "\n".join(f"{topology!s:14}{line}" for line in (*_lines(ours, theirs),))


def _lines(ours: Sequence[Timed], theirs: Sequence[Timed]) -> list[str]:
    if not theirs:
        return [f"ours {spread([each.wall_s for each in ours])} s; Dynamo is not installed (make bench-peers)"]
    return [
        f"{name:10} ours {spread(mine)} s, Dynamo's {spread(its)} s, ratio {ratios(mine, its)}"
        for name, mine, its in (
            ("wall time", [each.wall_s for each in ours], [each.wall_s for each in theirs]),
            ("CPU time", [each.cpu_s for each in ours], [each.cpu_s for each in theirs]),
        )
    ]


def crowd(trace: Trace, requests: int, per_s: float) -> Trace:
    """As many requests, from as many copies of the trace as it takes, each with prompts of its own, all at once."""
    copies = -(-requests // len(trace))
    found = [
        TraceRequest(request.arrival_s, request.prompt_tokens, request.output_tokens, _own(request.keys, copy))
        for copy in range(copies)
        for request in trace.requests
    ]
    chosen = sorted(found, key=lambda request: request.arrival_s)[:requests]
    return Trace(chosen, trace.block_size_tokens).faster(per_s * chosen[-1].arrival_s / requests)


def _own(keys: Sequence[int], copy: int) -> "array[int]":
    """Keys that no other copy has: another bijection for each."""
    mixed = np.asarray(keys, np.uint64) ^ np.uint64(copy * 0x9E3779B97F4A7C15 % 2**64)
    own = array("Q")
    own.frombytes(mixed.tobytes())
    return own


def large(replicas: int, requests: int) -> None:
    """Simulate them here and write down, for the process that asked, what it took."""
    trace = read_mooncake(traces() / TRACE, BLOCK_TOKENS)
    per_s = len(trace) / trace.requests[-1].arrival_s * replicas / 8
    many = crowd(trace, requests, per_s)
    prefill = round(replicas * 5 / 8)
    timed = simulated(Topology(prefill, replicas - prefill), many)
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    json.dump({**asdict(timed), "peak_bytes": peak_bytes, "span_s": many.requests[-1].arrival_s}, sys.stdout)


def large_elsewhere(replicas: int, requests: int) -> str:
    """A line about it, run in a process of its own."""
    say(f"{replicas:,} replicas, {requests:,} requests …")
    command = [sys.executable, "-m", __spec__.name, "--large", str(replicas), str(requests)]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=3600).stdout)
    return (
        f"{replicas:,} replicas, {told['requests']:,} requests in {told['span_s']:.0f} s of virtual time: "
        f"{show(told['wall_s'])} s on the clock, {show(told['cpu_s'])} of CPU (goal {GOAL_S:g}), "
        f"{told['peak_bytes'] / 2**30:.2f} GiB at most (goal {GOAL_BYTES / 2**30:g}); "
        f"{told['good'] / told['requests']:.1%} good"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=REPLICAS, help="of the large fleet; 0 leaves it out")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="for the large fleet")
    parser.add_argument("--quick", action="store_true", help=f"a smoke run: {QUICK_REQUESTS:,} requests, 50 replicas")
    parser.add_argument("--large", nargs=2, type=int, metavar=("REPLICAS", "REQUESTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        large(*options.large)
        return
    if options.quick:
        options.replicas, options.requests = 50, 2 * QUICK_REQUESTS
    path = traces() / TRACE
    trace = read_mooncake(path, BLOCK_TOKENS)
    count = QUICK_REQUESTS if options.quick else len(trace)
    print(machine.describe())
    print(f"{TRACE}: {count:,} requests, {options.rounds} rounds; medians, least and greatest")
    for topology in TOPOLOGIES:
        simulated(topology, trace.first(WARM_REQUESTS))  # what is compiled is loaded, or compiled once and for all
    with tempfile.TemporaryDirectory(prefix="bench-simulator-") as folder:
        file = first_lines(path, count, Path(folder))
        for topology in TOPOLOGIES:
            try:
                print(compare(topology, file, options.rounds), flush=True)
            except ReplayFailed as error:
                print(f"{topology}: Dynamo's replay failed: {error}")
    if options.replicas:
        print(large_elsewhere(options.replicas, options.requests))


if __name__ == "__main__":
    main()
