"""`baton pools`: who prefills and who decodes, and lending workers from one to the other by hand."""

from typing import TYPE_CHECKING, Annotated

import typer

from cluster.dataplane.frames import Role

if TYPE_CHECKING:
    from cluster.cli.far_workers import FarRoles

app = typer.Typer(help="See and change which workers prefill and which decode.", invoke_without_command=True)

Count = Annotated[int, typer.Argument(help="how many workers", min=1)]
To = Annotated[Role, typer.Option("--to", help="what they do from now on")]
Pin = Annotated[bool, typer.Option("--pin", help="nobody but you lends them again, until `baton pools unpin`")]
Worker = Annotated[str | None, typer.Option(help="this worker: its id, or how it begins")]
Address = Annotated[str | None, typer.Option(help="the Ray cluster; default: the `baton serve` of this machine")]


@app.callback()
def pools(context: typer.Context, address: Address = None) -> None:
    """Show every worker: what it does, whether it is lent or pinned, and how busy it is."""
    if context.invoked_subcommand is None:
        from cluster.cli import roles

        print(roles.table(_join(address).views()))


@app.command()
def lend(to: To, count: Count = 1, worker: Worker = None, pin: Pin = False, address: Address = None) -> None:
    """Give workers the other role, at once and without a restart; what runs there finishes.

    Those with least to finish go first. Where a target for the time between tokens is set, the pool controller may lend
    them back when the targets ask for it: `--pin` keeps them.
    """
    workers = _join(address)
    from cluster.cli import roles

    lent = roles.lend(workers, count, to, pin) if worker is None else [roles.lend_one(workers, worker, to, pin)]
    print(f"{', '.join(lent)}: {to} from now on{', pinned' if pin else ''}")


@app.command()
def unpin(address: Address = None) -> None:
    """Let the workers go that `lend --pin` holds; they stay what they are until somebody lends them."""
    workers = _join(address)
    from cluster.cli import roles

    print(f"unpinned: {', '.join(roles.unpin(workers)) or 'nobody was pinned'}")


@app.command()
def history(address: Address = None) -> None:
    """Show the latest changes of each worker's role and of how many there are, and their reasons, the newest last."""
    workers = _join(address)
    from cluster.cli import roles
    from cluster.scaling_history import recall

    print(roles.history(workers.views(), recall()) or "nobody was lent yet, and none were added or taken away")


def _join(address: str | None) -> "FarRoles":
    from cluster.runtime.ticket import Ticket, find_ticket

    (Ticket(address) if address is not None else find_ticket()).join()
    from cluster.cli.far_workers import FarRoles  # which imports ray, and ray reads its token when it is imported

    return FarRoles()
