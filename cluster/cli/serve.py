"""`baton serve`: a configuration file becomes a running deployment on this machine or on a Ray cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from configs.load import Deployment

File = Annotated[Path, typer.Argument(help="a Serve config file, e.g. configs/laptop.yaml", metavar="CONFIG")]
Model = Annotated[str | None, typer.Option(help="another model: a local folder, a `baton model` name or a hub name")]
Port = Annotated[int | None, typer.Option(help="another port than the file's", min=1, max=65_535)]
Sets = Annotated[list[str] | None, typer.Option("--set", help="change one key of the file", metavar="KEY.PATH=VALUE")]
Address = Annotated[str | None, typer.Option(help="join this Ray cluster instead of starting a private one")]


def serve(file: File, model: Model = None, port: Port = None, changes: Sets = None, address: Address = None) -> None:
    """Serve until Ctrl-C. Shows each replica coming up, then the address and a command to try."""
    from cluster.cli.run import Plan, run
    from cluster.runtime.instance import JoinedInstance, PrivateInstance
    from cluster.runtime.mark import current
    from configs.load import load
    from configs.overrides import parse, with_model

    overrides = [*(with_model(model) if model else []), *(parse(change) for change in changes or [])]
    deployment = load(file, overrides, port)
    mark = current()
    if address is None:
        plan = Plan(mark, _prepared(deployment), PrivateInstance(mark))
    else:
        plan = Plan(mark, deployment, JoinedInstance(address))
    raise typer.Exit(run(plan))


def _prepared(deployment: "Deployment") -> "Deployment":
    """Everything that can be wrong before Ray starts: what dead runs left, the port, the model."""
    from cluster.cli.progress import shown
    from cluster.models.fetch import resolve
    from cluster.runtime.ports import require_free
    from cluster.runtime.reclaim import reclaim

    reclaimed = reclaim()
    if reclaimed.pids or reclaimed.folders:
        print(f"reclaimed {len(reclaimed.pids)} processes and {len(reclaimed.folders)} folders of earlier runs")
    require_free(deployment.http.host, deployment.http.port)
    with shown(deployment.config.model.path) as report:
        path = resolve(deployment.config.model.path, report)
    return deployment.on_one_machine(path)
