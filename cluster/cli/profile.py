"""`baton profile`: how fast replicas are: measured, by roofline, or as it comes with Baton."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperGroup


class _OrMeasure(TyperGroup):
    """`baton profile CONFIG` is `baton profile measure CONFIG`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # click's own
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["measure", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Measure how fast a replica is (baton profile CONFIG -o FILE); list and show profiles that come with Baton.",
    no_args_is_help=True,
    cls=_OrMeasure,
)

Name = Annotated[str, typer.Argument(help="as `baton profile list` names it, or a file", metavar="NAME")]
Config = Annotated[Path, typer.Argument(help="a Serve config file, e.g. configs/laptop.yaml", metavar="CONFIG")]
Output = Annotated[Path, typer.Option("-o", "--output", help="the profile's file", metavar="FILE")]
Pool = Annotated[Literal["prefill", "decode"], typer.Option(help="whose engine")]
Quick = Annotated[bool, typer.Option("--quick", help="fewer points, two rounds: a minute or two on a laptop")]
Minutes = Annotated[float, typer.Option(help="measure no longer than this, the engine's start not counted", min=0.1)]
Sets = Annotated[list[str] | None, typer.Option("--set", help="change one key of the file", metavar="KEY.PATH=VALUE")]


@app.command()
def measure(
    file: Config,
    output: Output,
    pool: Pool = "decode",
    quick: Quick = False,
    minutes: Minutes = 10,
    changes: Sets = None,
) -> None:
    """Start a pool's engine here, measure it, write its profile. Nothing else should run on the machine meanwhile."""
    from configs.load import load
    from configs.overrides import parse

    deployment = load(file, [parse(change) for change in changes or []])
    if output.suffix not in (".yaml", ".yml") or not output.parent.is_dir():
        raise typer.BadParameter(f"-o: given {str(output)!r}; allowed: a .yaml file in a folder that exists")
    from cluster.cli.profile_measure import run
    from cluster.profiling.rig import CannotProfile
    from cluster.profiling.session import Pace

    try:
        run(deployment, pool, Pace(2 if quick else 3, quick, 60 * minutes), output)
    except CannotProfile as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None


@app.command("list")
def list_profiles() -> None:
    """Show all profiles that need no measuring. `h100x2/MODEL` shares a model between two devices."""
    from configs.hardware import ACCELERATORS
    from configs.model_shapes import MODELS
    from configs.profile_names import SHIPPED, RooflineName
    from configs.profiles import named
    from configs.roofline import least_count

    names = [RooflineName(device, least_count(device, model), model) for model in MODELS for device in ACCELERATORS]
    print(f"{'':28}{'prefill':>12}{'decode step':>14}{'context':>16}{'KV cache':>14}")
    print(f"{'name':28}{'tokens/s':>12}{'ms':>14}{'ms/1k tokens':>16}{'tokens':>14}")
    for name in (*SHIPPED, *map(str, names)):
        profile = named(name)
        rates = profile.all_rates()
        print(
            f"{name:28}{1 / rates['prefill_token_s']:12,.0f}{1e3 * rates['decode_step_s']:14.1f}"
            f"{1e6 * rates['decode_context_token_s']:16.3f}{profile.kv_tokens:14,}"
        )


@app.command()
def show(name: Name) -> None:
    """Print a profile as a file that `router.profile` and `baton plan --profile` take, once it is saved and edited."""
    from configs.profile_file import write_profile
    from configs.profiles import named

    print(write_profile(named(name)), end="")
