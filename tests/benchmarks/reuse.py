"""How much of a recorded conversation's prompts is not computed again when evicted blocks are kept in host memory.

The production router, index, ledger and eviction policy in virtual time, with eight workers whose stores together hold
four times what their devices do: on one node, and on eight nodes that read each other's stores. Beside them the devices
alone, eight nodes that do not read from each other, and what one shared LRU of all that memory and an unlimited cache
would reach. Nothing depends on the clock: a figure is the same on every machine and in every run.
"""

import argparse
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.planning import minds
from cluster.planning.gateway import Gateway
from cluster.planning.outcome import Summary
from cluster.planning.settings import ClusterSettings, NetworkSettings, WorkerSettings
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace, statistics
from cluster.planning.trace_files import read_mooncake
from routing.fleet import Role
from tests.benchmarks import machine
from tests.benchmarks.routing import QUICK_REQUESTS, TRACE, traces
from tests.benchmarks.routing_policies import ITL_TARGET_S
from tests.benchmarks.routing_rows import BLOCK_TOKENS, DEVICE_BLOCKS, SEED, SLO, Transfers, engine, profile

WORKERS = 8
DEVICE_TOTAL = WORKERS * DEVICE_BLOCKS
HOST_TOTAL = 4 * DEVICE_TOTAL
KV_BYTES = 131_072
NEVER_BYTES_PER_S = 1.0


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster to measure. At `remote_bytes_per_s` the router expects blocks to come from another node."""

    name: str
    nodes: int
    host_blocks: int
    remote_bytes_per_s: float


def setups(transfers: Transfers) -> Sequence[Setup]:
    """In the order in which they are shown."""
    rate = transfers.transfer_bytes_per_s
    return (
        Setup("devices alone", WORKERS, 0, rate),
        Setup("8 nodes, each reads its own store", WORKERS, HOST_TOTAL, NEVER_BYTES_PER_S),
        Setup("8 nodes that read each other's stores", WORKERS, HOST_TOTAL, rate),
        Setup("1 node", 1, HOST_TOTAL, rate),
    )


def main() -> None:
    options = parse()
    trace = read_mooncake(traces() / TRACE, BLOCK_TOKENS)
    if options.quick:
        trace = trace.first(QUICK_REQUESTS)
    transfers = Transfers(options.kv_bytes)
    print(machine.describe())
    print(
        f"{len(trace):,} requests, {WORKERS} workers of {DEVICE_BLOCKS:,} blocks of {BLOCK_TOKENS} tokens, host memory "
        f"for {HOST_TOTAL:,} blocks in all,\n{options.kv_bytes:,} bytes of KV a token are moved, 25 GB/s into a node "
        "and 50 to a device\n"
    )
    print(f"{'':40}{'reuse':>8}{'fetched':>9}{'TTFT':>10}{'TTFT p99':>10}{'good':>8}", flush=True)
    for setup in setups(transfers):
        began = time.monotonic()
        found = measure(setup, trace, transfers)
        print(line(setup.name, found), flush=True)
        print(f"{setup.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(f"{'one shared LRU of all that memory':40}{shared_lru(trace, DEVICE_TOTAL + HOST_TOTAL):8.3f}")
    print(f"{'an unlimited cache':40}{statistics(trace).reuse:8.3f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kv-bytes", type=int, default=KV_BYTES, help="of a token, to be moved")
    parser.add_argument("--quick", action="store_true", help=f"a smoke run: the first {QUICK_REQUESTS:,} requests")
    return parser.parse_args()


def measure(setup: Setup, trace: Trace, transfers: Transfers) -> Summary:
    """One simulation of the whole trace."""
    settings = replace(engine(transfers), host_blocks=setup.host_blocks // setup.nodes)
    workers = [WorkerSettings(f"d{i}", Role.DECODE, f"node-{i % setup.nodes}", settings) for i in range(WORKERS)]
    cluster = ClusterSettings(tuple(workers), NetworkSettings(transfer_bytes_per_s=transfers.transfer_bytes_per_s))
    rates = replace(profile(transfers), remote_bytes_per_s=setup.remote_bytes_per_s)
    gateway = Gateway(0, minds.kv_aware(rates, ITL_TARGET_S), random.Random(SEED))
    return Simulation(cluster, [gateway], trace).run().summary(SLO)


def line(name: str, found: Summary) -> str:
    times = f"{found.ttft_mean_s:9.3f}s{found.ttft_p99_s:9.3f}s"
    return f"{name:40}{found.reuse:8.3f}{found.fetched:9.3f}{times}{found.good:8,}"


def shared_lru(trace: Trace, blocks: int) -> float:
    """Reuse of one cache that sees every prompt in order of arrival, whole and at once."""
    held: OrderedDict[int, None] = OrderedDict()
    reused = 0
    for request in trace.requests:
        reused += next((i for i, key in enumerate(request.keys) if key not in held), len(request.keys))
        for key in reversed(request.keys):
            held[key] = None
            held.move_to_end(key)
        while len(held) > blocks:
            held.popitem(last=False)
    return reused * trace.block_size_tokens / sum(request.prompt_tokens for request in trace.requests)


if __name__ == "__main__":
    main()
