"""`baton model`: the models Baton knows by name, and their folders on this machine."""

from typing import Annotated

import typer

app = typer.Typer(help="List, fetch and find the models Baton knows by name.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="a name that `baton model list` shows")]


@app.command("list")
def list_models() -> None:
    """Every known model and whether it is here."""
    from cluster.models.cache import cached
    from cluster.models.catalogue import CATALOGUE

    for entry in CATALOGUE.values():
        folder = cached(entry.name)
        print(f"{entry.name:10} {entry.description}\n{'':10} {folder or 'not fetched'}")


@app.command()
def fetch(name: Name) -> None:
    """Make a model's folder unless it is there and whole; print its path."""
    from cluster.cli.progress import shown
    from cluster.models.fetch import fetch

    with shown(name) as report:
        folder = fetch(name, report)
    print(folder)


@app.command()
def path(name: Name) -> None:
    """Print the folder of a model that is here."""
    from cluster.models.cache import cached
    from cluster.models.errors import ModelUnavailable

    folder = cached(name)
    if folder is None:
        raise ModelUnavailable(f"{name} is not here; `baton model fetch {name}` gets it")
    print(folder)
