"""How well requests are placed: our router, plain policies and Dynamo's router, on a recorded trace in virtual time.

Policies of ours run in our simulator (`cluster/planning`) with the production router, ledger and index. Dynamo's router
runs in Dynamo's own offline replay, when `make bench-peers` has installed it; its round robin runs there too, to show
that the two simulators agree. Apart from the wall time our figures are the same on every machine; Dynamo breaks ties at
random.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cluster.planning.trace import Trace, statistics
from cluster.planning.trace_files import read_mooncake
from tests.benchmarks import machine
from tests.benchmarks.routing_dynamo import ReplayFailed
from tests.benchmarks.routing_policies import POLICIES
from tests.benchmarks.routing_rows import (
    BLOCK_TOKENS,
    DEVICE_BLOCKS,
    FREE,
    RIDER_TOKENS,
    SLO,
    Row,
    Topology,
    Transfers,
    replayed,
    simulated,
)
from tests.benchmarks.routing_table import as_json_lines, as_text
from tests.benchmarks.targets import dynamo

TRACE = "mooncake_conversation.jsonl"
QUICK_REQUESTS = 1_500
AGGREGATED = Topology(0, 8)
SPLITS = (Topology(6, 2), Topology(5, 3), Topology(4, 4))


def main() -> None:
    options = parse()
    path = traces() / TRACE
    trace = read_mooncake(path, BLOCK_TOKENS)
    if options.quick:
        trace = trace.first(QUICK_REQUESTS)
    print(head(trace, options.transfers))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-routing-") as folder:
        file = first_lines(path, len(trace), Path(folder))
        for row in measure(options, trace, file):
            say(as_text([row]).splitlines()[1])
            rows.append(row)
    print(as_text(sorted(rows, key=lambda row: (row.speed, row.topology.prefill))))
    if options.json:
        options.json.write_text(as_json_lines(rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speeds", nargs="+", type=float, default=[1.0, 3.0], help="of the trace")
    parser.add_argument("--policies", nargs="+", default=[*(p.name for p in POLICIES), "dynamo"])
    parser.add_argument("--aggregated-only", action="store_true", help="no prefill/decode splits")
    parser.add_argument(
        "--kv-bytes", type=int, default=0, help="of a token, to be moved (25 GB/s in, 50 to the device)"
    )
    parser.add_argument("--json", type=Path, help="also write every row's figures there")
    parser.add_argument("--quick", action="store_true", help=f"a smoke run: the first {QUICK_REQUESTS:,} requests")
    options = parser.parse_args()
    options.transfers = Transfers(options.kv_bytes) if options.kv_bytes else FREE
    return options


def traces() -> Path:
    """The folder of traces: BATON_TRACES, else ../shared/traces beside the repository."""
    given = os.environ.get("BATON_TRACES")
    return Path(given) if given else Path(__file__).parents[3] / "shared" / "traces"


def head(trace: Trace, transfers: Transfers) -> str:
    """What was measured, and with what."""
    told = statistics(trace)
    moved = (
        "transfers are free" if transfers == FREE else f"{transfers.bytes_per_token:,} bytes of KV a token are moved"
    )
    return "\n".join(
        [
            machine.describe(),
            f"trace: {told.requests:,} requests, {told.mean_prompt_tokens:,.0f} tokens in and "
            f"{told.mean_output_tokens:,.0f} out on average, reuse with an unlimited cache {told.reuse:.3f}",
            f"workers: {DEVICE_BLOCKS:,} blocks of {BLOCK_TOKENS} tokens, Dynamo mocker's polynomial timing "
            f"(in ours, up to {RIDER_TOKENS} prompt tokens ride along in a decode step), {moved}",
            f"goodput: TTFT at most {SLO.ttft_s:g} s and mean ITL at most {1000 * SLO.itl_s:g} ms",
            "",
        ]
    )


def first_lines(path: Path, count: int, folder: Path) -> Path:
    """The requests that are simulated, as a file for Dynamo's replay."""
    file = folder / path.name
    file.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))
    return file


def measure(options: argparse.Namespace, trace: Trace, file: Path) -> Iterator[Row]:
    """All rows, one after the other."""
    splits = () if options.aggregated_only else SPLITS
    for speed in options.speeds:
        for policy in POLICIES:
            if policy.name in options.policies:
                together = (AGGREGATED,) if policy.lends is None else ()
                for topology in (*together, *(splits if policy.may_split else ())):
                    yield simulated(policy, topology, speed, trace, options.transfers)
        if "dynamo" in options.policies:
            yield from replays(speed, (AGGREGATED, *splits), file, options.transfers)


def replays(speed: float, topologies: tuple[Topology, ...], file: Path, transfers: Transfers) -> Iterator[Row]:
    """Dynamo's rows. One that fails is named and left out."""
    if not dynamo.installed():
        say("Dynamo: left out: not installed (make bench-peers)")
        return
    for mode, topology in [("round_robin", AGGREGATED), *(("kv_router", topology) for topology in topologies)]:
        try:
            yield replayed(mode, topology, speed, file, transfers)
        except ReplayFailed as error:
            say(f"Dynamo {mode}, {topology}: left out: {error}")


def say(line: str) -> None:
    """Progress; the report alone goes to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
