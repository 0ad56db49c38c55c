"""The simulator against real vLLM: the same requests on 1P+1D of real engines, and in virtual time with their profile.

Measures the profile of one engine (the other idles), serves a slice of mixed lengths that come at random on both, and
simulates it with the production router, the measured rates and no learning. A request's error is
|simulated - real| / real.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path

from cluster.planning.gateway import Gateway
from cluster.planning.minds import kv_aware
from cluster.planning.outcome import Record
from cluster.planning.settings import ClusterSettings, EngineSettings, NetworkSettings, split
from cluster.planning.simulation import Simulation
from cluster.planning.step_time import ProfiledStepTime
from cluster.planning.trace import Trace
from cluster.profiling.schedule import Limits
from cluster.rates import router_profile
from configs.profile_file import ProfileConfig
from tests.benchmarks.machine import describe
from tests.benchmarks.real_pair import CHAT, CONFIG, LONG, Served, mixed, real_pair
from tests.benchmarks.spread import percentile

GOAL = 0.10


def simulated(trace: Trace, profile: ProfileConfig, limits: Limits) -> Sequence[Record]:
    """The slice in virtual time."""
    rates = router_profile(profile.rates)
    engine = EngineSettings(
        step_time=ProfiledStepTime(rates),
        block_size_tokens=limits.block_size_tokens,
        device_blocks=limits.kv_tokens // limits.block_size_tokens,
        max_batched_tokens=rates.chunk_tokens,
        max_running=rates.max_running,
        max_model_len=limits.max_model_len,
        kv_bytes_per_token=rates.kv_bytes_per_token,
        load_bytes_per_s=rates.host_bytes_per_s,
        load_latency_s=rates.host_latency_s,
    )
    cluster = split(1, 1, engine, NetworkSettings(transfer_bytes_per_s=inf))  # one node: nothing moves
    outputs = sum(request.output_tokens for request in trace.requests) // len(trace.requests)
    settings = ClusterSettings(cluster.workers, cluster.network, outputs)
    return Simulation(settings, [Gateway(0, kv_aware(rates), random.Random(1))], trace).run().records


def errors(simulated_s: Sequence[float], real_s: Sequence[float]) -> list[float]:
    """Relative, request by request."""
    return [abs(ours / theirs - 1) for ours, theirs in zip(simulated_s, real_s, strict=True)]


def report(real: Sequence[Served], records: Sequence[Record]) -> str:
    """Both, side by side."""
    rows = [
        ("TTFT", [each.ttft_s for each in real], [record.ttft_s for record in records]),
        ("mean ITL", [each.itl_s for each in real], [record.itl_s for record in records]),
    ]
    lines = [f"{'':10}{'real p50':>10}{'p99':>9}{'simulated p50':>15}{'p99':>9}{'median error':>14}{'p90':>8}"]
    for name, theirs, ours in rows:
        off = errors(ours, theirs)
        times = [percentile(values, share) for values in (theirs, ours) for share in (0.5, 0.99)]
        lines.append(
            f"{name:10}{times[0]:9.3f}s{times[1]:8.3f}s{times[2]:14.3f}s{times[3]:8.3f}s"
            f"{percentile(off, 0.5):14.1%}{percentile(off, 0.9):8.1%}"
        )
    same = sum((each.prefill is None) == (record.prefill is None) for each, record in zip(real, records, strict=True))
    elsewhere = sum(each.prefill is not None for each in real)
    lines.append(
        f"n {len(real)}; {elsewhere} prefilled elsewhere in reality; the simulated router chose alike for {same}"
    )
    return "\n".join(lines)


async def run(options: argparse.Namespace) -> None:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async with real_pair(options.config, say) as pair:
        limits = pair.limits
        await pair.warm()
        profile = await pair.profile(say, options.minutes)
        for seed in range(1, options.rounds + 1):
            trace = mixed([CHAT, LONG], options.seconds, limits.block_size_tokens, seed)
            say(f"round {seed} of {options.rounds}: {len(trace)} requests in {options.seconds:.0f} s")
            real = await pair.routed(trace, ("prefill", "decode"), profile.rates)
            print(f"\nround {seed}, goal: median error at most {GOAL:.0%}")
            print(report(real, simulated(trace, profile, limits)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each slice")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=3.0, help="for the profile")
    parser.add_argument("--config", type=Path, default=CONFIG, help="whose engines")
    options = parser.parse_args()
    print(describe(), flush=True)
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
