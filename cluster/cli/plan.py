"""`baton plan`: the ratio of prefill to decode that serves a workload best, found by simulating it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cluster.planning.planner.question import Question
    from configs.profile_file import ProfileConfig

Trace = Annotated[Path, typer.Option(help=".jsonl (Mooncake), .csv (Azure) or .yaml (a described workload)")]
Profile = Annotated[str, typer.Option(help="one of `baton profile list`, or a file as `baton profile show` prints one")]
Targets = Annotated[
    str, typer.Option("--slo", help="what a good request keeps: time to first token, mean time between")
]
Replicas = Annotated[
    int | None, typer.Option(help="how many there are; without, the fewest are found", min=1, max=1024)
]
Attainment = Annotated[float, typer.Option(help="without --replicas: share of requests to be good", min=0.01, max=1)]
Load = Annotated[float, typer.Option(help="requests come this many times as fast as in the trace", min=0.001)]
Cost = Annotated[
    str | None, typer.Option(help="price of a replica: prefill=4.1,decode=2.5; of equals the cheapest wins")
]
Host = Annotated[str, typer.Option(help="host memory for KV on each replica's node, e.g. 256GiB")]
Plot = Annotated[Path | None, typer.Option(help="draw goodput over ratio and load there: .png or .svg")]
Base = Annotated[
    Path | None, typer.Option("--config", help="a Serve file whose numbers of replicas are to be replaced")
]
Model = Annotated[str, typer.Option(help="for the deployment's file, where --config is not given")]
Out = Annotated[Path | None, typer.Option(help="write the deployment's file there; default: standard output")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


def plan(
    trace: Trace,
    profile: Profile,
    targets: Targets = "ttft=2s,itl=25ms",
    replicas: Replicas = None,
    attainment: Attainment = 0.99,
    load: Load = 1.0,
    cost: Cost = None,
    host_memory: Host = "0",
    plot: Plot = None,
    config: Base = None,
    model: Model = "PATH-OF-YOUR-MODEL",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Find the best ratio of prefill to decode, or the fewest replicas, for a workload; nothing is started."""
    from cluster.cli import plan_report
    from cluster.cli.plan_options import costs_of, slo_of
    from cluster.cli.plan_processes import processes
    from cluster.cli.progress import trials_shown
    from cluster.planning.planner.answer import Wish, answer
    from cluster.planning.planner.survey import survey

    slo, costs = slo_of(targets), costs_of(cost)
    base = _document(config)
    found = _profile(profile)
    question = _question(trace, found, slo, costs, host_memory)
    wish = Wish(replicas, attainment, load)
    with trials_shown("planning") as shown, processes(question, shown.tried) as attempt:
        result = answer(question, wish, attempt, shown.says)
        if plot is not None:
            shown.says("the picture")
            points = survey(result.best.topology, result.effort.climb, load, attempt)
    if plot is not None:
        from cluster.cli.plan_plot import draw

        draw(
            points,
            result.best.topology,
            load,
            slo,
            f"{trace.name} on {result.best.topology.replicas} × {profile}",
            plot,
        )
    text = plan_report.deployment(result.best.topology, profile, slo, model, base)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if as_json:
        print(json.dumps({"best": asdict(result.best), "tried": [asdict(each) for each in result.tried]}, indent=2))
        return
    print(plan_report.as_table(result.tried, result.best, slo, costs))
    print(f"\n{plan_report.conclusion(result.best, costs)}")
    if out is None:
        print(f"\n# baton serve FILE, or serve deploy FILE:\n{text}", end="")


def _profile(name: str) -> "ProfileConfig":
    from configs.profiles import named

    return named(name)


def _question(trace: Path, profile: "ProfileConfig", slo: Any, costs: Any, host_memory: str) -> "Question":
    from cluster.cli.plan_options import bytes_of
    from cluster.planning.planner.question import CannotPlan, Engine, Question
    from cluster.planning.trace_files import MOONCAKE_BLOCK_TOKENS, TraceError, read_trace
    from cluster.rates import router_profile

    host_tokens = bytes_of("--host-memory", host_memory) // int(profile.all_rates()["kv_bytes_per_token"])
    try:
        read = read_trace(trace, MOONCAKE_BLOCK_TOKENS)
        engine = Engine.profiled(router_profile(profile), profile.kv_tokens, host_tokens)
        return Question(read, engine, slo, costs, slo.itl_s)
    except (TraceError, CannotPlan) as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(f"{trace}: cannot be read: {error.strerror}") from error


def _document(config: Path | None) -> dict[str, Any] | None:
    if config is None:
        return None
    import yaml

    from configs.load import load

    load(config)
    document: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8"))
    return document
