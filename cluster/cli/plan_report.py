"""A plan in words: the table of what was tried, and the file that deploys it."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import yaml

from cluster.planning.outcome import Slo
from cluster.planning.planner.question import Costs
from cluster.planning.planner.topology import Topology
from cluster.planning.planner.trial import Trial
from configs.profile_names import roofline_name

WITHOUT_GPU = ("laptop_cpu", "simulated")

HEAD = ("good", "good/s", "TTFT p50 s", "p99 s", "ITL p50 ms", "p99 ms", "reuse", "cost", "n")


def as_table(tried: Sequence[Trial], best: Trial, slo: Slo, costs: Costs) -> str:
    """One line for each topology, the chosen one marked."""
    lines = [
        f"good: TTFT at most {slo.ttft_s:g} s and mean ITL at most {1000 * slo.itl_s:g} ms; n: requests simulated",
        f"  {'':16}" + "".join(f"{name:>12}" for name in HEAD),
    ]
    lines += [_row(trial, trial is best, costs) for trial in sorted(tried, key=lambda trial: trial.topology)]
    return "\n".join(lines)


def _row(trial: Trial, chosen: bool, costs: Costs) -> str:
    cells = (
        "given up" if trial.given_up else f"{trial.share:.1%}",
        f"{trial.good_per_s:.2f}",
        f"{trial.ttft_p50_s:.2f}",
        f"{trial.ttft_p99_s:.2f}",
        f"{1000 * trial.itl_p50_s:.1f}",
        f"{1000 * trial.itl_p99_s:.1f}",
        f"{trial.reuse:.1%}",
        f"{costs.of(trial.topology):g}",
        f"{trial.ask.requests:,}",
    )
    return f"{'→' if chosen else ' '} {trial.topology!s:16}" + "".join(f"{cell:>12}" for cell in cells)


def conclusion(best: Trial, costs: Costs) -> str:
    """The choice in a sentence."""
    return (
        f"{best.topology}: {best.share:.1%} of requests are good, {best.good_per_s:.2f} a second, "
        f"for {costs.of(best.topology):g}"
    )


def deployment(topology: Topology, profile: str, slo: Slo, model: str, base: dict[str, Any] | None = None) -> str:
    """A Serve file with these pools: `base` with its numbers of replicas replaced, else one to be edited."""
    document = base or {
        "applications": [
            {"name": "baton", "route_prefix": "/", "import_path": "cluster.app:build", "args": _args(profile, model)}
        ]
    }
    for application in document["applications"]:
        if application["import_path"] == "cluster.app:build":
            args = application.setdefault("args", {})
            for pool, replicas in (("prefill", topology.prefill), ("decode", topology.decode)):
                args[pool] = {**args.get(pool, {}), "replicas": replicas}
            args["router"] = {**args.get("router", {}), "profile": profile, "itl_target_s": slo.itl_s}
    return yaml.safe_dump(document, sort_keys=False, width=120)


def _args(profile: str, model: str) -> dict[str, Any]:
    """One GPU for each replica, unless the profile says otherwise by its name."""
    named = roofline_name(profile)
    engine: dict[str, Any] = {"kind": "vllm"}
    if named is not None and named.count > 1:
        engine["args"] = {"tensor_parallel_size": named.count}
    pool = {"num_gpus": named.count if named is not None else int(profile not in WITHOUT_GPU), "engine": engine}
    return {"model": {"path": model}, "prefill": pool, "decode": deepcopy(pool)}
