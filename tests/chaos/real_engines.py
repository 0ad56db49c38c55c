"""Kills, stops and cuts each part of a service with real vLLM engines under load, one after another: `make chaos-real`.

The row "nothing" is the control: the same load, and no fault. How answers are compared is in `tests.chaos.real_trial`.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from cluster.models.fetch import resolve
from cluster.runtime.flags import serve_flags
from tests.benchmarks.machine import describe
from tests.chaos.faults import Kill
from tests.chaos.parts import Part, Parts
from tests.chaos.real_faults import KillCore, SeverPool, StopCore, StopReplica, SwapRoles, cores
from tests.chaos.real_trial import ANSWER_TOKENS, CLIENTS, HEAD, Case, Row, service, trial
from tests.support.serving import two_nodes


def _of(kind: str) -> Callable[[Parts], Sequence[Part]]:
    return lambda parts: parts.of(kind)


def _cores(pool: str) -> Callable[[Parts], Sequence[Part]]:
    return lambda parts: cores(parts, pool)


CASES: Mapping[str, Sequence[Case]] = {
    "1P+1D": (
        Case("nothing", None),
        Case("both workers lent, and back", SwapRoles(10.0)),
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
        Case("decode replica stopped", StopReplica("decode"), _of("decode")),
    ),
}


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
