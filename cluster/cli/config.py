"""`baton config`: check a file without starting anything; show what it amounts to with every default."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Check and show configuration files.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="a Serve config file", metavar="FILE")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="change a key before checking", metavar="KEY.PATH=VALUE")]


@app.command()
def check(file: File, changes: Sets = None) -> None:
    """Say what is wrong with a file, or that nothing is."""
    from configs.load import load
    from configs.overrides import parse

    deployment = load(file, [parse(change) for change in changes or []])
    config = deployment.config
    print(
        f"{file} is right: {config.model.path} on {config.prefill.replicas} prefill and {config.decode.replicas} "
        f"decode workers at {deployment.http.host}:{deployment.http.port}"
    )


@app.command()
def show(file: File, changes: Sets = None) -> None:
    """Print the configuration with every default filled in. A secret is not printed."""
    import yaml

    from configs.load import load
    from configs.overrides import parse

    deployment = load(file, [parse(change) for change in changes or []])
    print(yaml.safe_dump(deployment.config.model_dump(mode="json"), sort_keys=False), end="")
