"""What separating prefill from decode brings on two real engines: 1P+1D against two that do both.

The same two vLLM engines, a core each, serve the same mixed traffic (long prompts and chats, at random times) in turn
as prefill and decode, as two that do both behind our router, and as two that do both in plain turns (round robin
without coordinator and data plane). A request is good when its first token and its mean time between tokens come in
time. ITL is over all tokens.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.profiles import named
from tests.benchmarks.machine import describe
from tests.benchmarks.real_pair import CHAT, CONFIG, LONG, RealPair, Served, mixed, real_pair
from tests.benchmarks.spread import percentile, ratios, spread

MODES = ("1P+1D", "2 aggregated, ours", "2 aggregated, in turns")
RIVAL = MODES[2]
FIGURES = ("TTFT p50 s", "TTFT p99 s", "ITL p50 ms", "ITL p99 ms", "good")
GOAL = 0.5

Rounds = dict[str, list[list[float]]]


def figures(served: Sequence[Served], ttft_s: float, itl_s: float) -> list[float]:
    """In the order of `FIGURES`."""
    ttfts, gaps = [each.ttft_s for each in served], [1e3 * gap for each in served for gap in each.gaps_s]
    good = sum(each.ttft_s <= ttft_s and each.itl_s <= itl_s for each in served) / len(served)
    return [*(percentile(ttfts, at) for at in (0.5, 0.99)), *(percentile(gaps, at) for at in (0.5, 0.99)), good]


async def serve(pair: RealPair, mode: str, options: argparse.Namespace, seed: int) -> list[Served]:
    """One mode, one round."""
    trace = mixed([CHAT, LONG], options.seconds, pair.limits.block_size_tokens, seed)
    rates = named(options.profile).rates
    match mode:
        case "1P+1D":
            return await pair.routed(trace, ("prefill", "decode"), rates)
        case "2 aggregated, ours":
            return await pair.routed(trace, ("decode", "decode"), rates)
        case _:
            return await pair.in_turns(trace)


def report(rounds: Rounds) -> str:
    """Medians over rounds with their spread, and ratios to the rival, round by round."""
    lines = [f"{'':24}" + "".join(f"{name:>22}" for name in FIGURES)]
    for mode in MODES:
        columns = list(zip(*rounds[mode], strict=True))
        lines.append(f"{mode:24}" + "".join(f"{spread(column)!s:>22}" for column in columns))
    for mode in MODES[:2]:
        pairs = zip(zip(*rounds[mode], strict=True), zip(*rounds[RIVAL], strict=True), strict=True)
        told = [f"{ratios(ours, theirs)!s:>22}" for ours, theirs in list(pairs)[:4]]
        lines.append(f"{f'{mode} / {RIVAL}'[:40]:24}\n{'':24}" + "".join(told))
    return "\n".join(lines)


async def run(options: argparse.Namespace) -> Rounds:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rounds: Rounds = {mode: [] for mode in MODES}
    async with real_pair(options.config, say) as pair:
        await pair.warm()
        for seed in range(1, options.rounds + 1):
            for turn in range(len(MODES)):
                mode = MODES[(turn + seed) % len(MODES)]
                served = await serve(pair, mode, options, seed)
                rounds[mode].append(figures(served, options.ttft, options.itl))
                elsewhere = sum(each.prefill is not None for each in served)
                say(f"round {seed}, {mode}: n {len(served)}, {elsewhere} prefilled elsewhere")
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", default="laptop_cpu", help="where the router starts from; a file, as measured")
    parser.add_argument("--ttft", type=float, default=2.0, help="seconds to the first token of a good request")
    parser.add_argument("--itl", type=float, default=0.15, help="its mean seconds between tokens")
    parser.add_argument("--config", type=Path, default=CONFIG, help="whose engines")
    options = parser.parse_args()
    print(describe(), flush=True)
    print(f"{CHAT} and {LONG}, {options.rounds} rounds of {options.seconds:.0f} s; good: {options.ttft:g} s, ", end="")
    print(f"{1e3 * options.itl:g} ms; goal: ITL p99 at most {GOAL} of {RIVAL}")
    print(report(asyncio.run(run(options))))


if __name__ == "__main__":
    main()
