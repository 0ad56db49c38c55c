"""`baton size`: how many replicas, worked out in six steps with the formula and the source of each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cluster.planning.planner.sizing import PeakLoad

Profile = Annotated[str, typer.Option(help="one of `baton profile list`, or a file as `baton profile show` prints one")]
Targets = Annotated[str, typer.Option("--slo", help="time to first token and between tokens, to be kept on average")]
Rate = Annotated[float | None, typer.Option(help="requests a second at the peak", min=1e-6)]
Prompt = Annotated[float | None, typer.Option(help="mean tokens of a prompt", min=1)]
Output = Annotated[float | None, typer.Option(help="mean tokens of an answer", min=1)]
Cached = Annotated[float, typer.Option(help="share of prompt tokens that caches save", min=0, max=0.99)]
Trace = Annotated[Path | None, typer.Option(help="take rate and lengths from a trace instead: its busiest minute")]
Spare = Annotated[int, typer.Option(help="replicas of each pool that may be lost at the peak", min=0, max=64)]


def size(
    profile: Profile,
    targets: Targets = "ttft=2s,itl=25ms",
    rate: Rate = None,
    prompt: Prompt = None,
    output: Output = None,
    cached: Cached = 0.0,
    trace: Trace = None,
    spare: Spare = 1,
) -> None:
    """Work out how many prefill and decode replicas a load needs. Arithmetic alone: `baton plan` simulates."""
    from cluster.cli.plan_options import slo_of
    from cluster.cli.size_steps import explain
    from cluster.planning.planner import sizing
    from cluster.planning.planner.question import CannotPlan
    from cluster.rates import router_profile
    from configs.profiles import named

    slo, found = slo_of(targets), named(profile)
    load = _load(rate, prompt, output, cached, trace)
    try:
        result = sizing.size(load, router_profile(found), found.kv_tokens, slo, spare)
    except CannotPlan as error:
        raise typer.BadParameter(str(error)) from error
    print(explain(profile, found, load, slo, result))


def _load(
    rate: float | None, prompt: float | None, output: float | None, cached: float, trace: Path | None
) -> "PeakLoad":
    from cluster.planning.planner.sizing import PeakLoad, peak_of
    from cluster.planning.trace_files import MOONCAKE_BLOCK_TOKENS, TraceError, read_trace

    if trace is not None:
        try:
            return peak_of(read_trace(trace, MOONCAKE_BLOCK_TOKENS), cached)
        except TraceError as error:
            raise typer.BadParameter(str(error)) from error
        except OSError as error:
            raise typer.BadParameter(f"{trace}: cannot be read: {error.strerror}") from error
    if rate is None or prompt is None or output is None:
        raise typer.BadParameter("give --rate, --prompt and --output, or --trace")
    return PeakLoad(rate, prompt, output, cached)
