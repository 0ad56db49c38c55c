"""`baton drain`: a worker out of service, and back."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cluster.cli.out_of_service import WorkerView

Replica = Annotated[str, typer.Argument(help="the worker: its id in `baton status`, or how it begins")]
Timeout = Annotated[
    float | None,
    typer.Option(help="seconds its streams may end there; default: timeouts.drain_finish_s of the file", min=0),
]
Undo = Annotated[bool, typer.Option("--undo", help="put it back into service")]
Force = Annotated[bool, typer.Option("--force", help="also the last worker that decodes")]
Address = Annotated[str | None, typer.Option(help="the Ray cluster; default: the `baton serve` of this machine")]


def drain(
    replica: Replica, timeout: Timeout = None, undo: Undo = False, force: Force = False, address: Address = None
) -> None:
    """Take a worker out of service without breaking a stream, e.g. before its machine is.

    It takes nothing new from now on. Its streams may end there until the timeout; then others go on with them, and
    clients see a pause. Exit code 1 when some are still there half a minute later: nobody else can take them, and they
    stay to their end.

    The worker stays as it is, out of service, with its model loaded: until `--undo`, or until Serve replaces it, e.g.
    in a redeploy or when it dies. What takes its place begins in service.
    """
    from cluster.runtime.ticket import Ticket, find_ticket

    if undo and (force or timeout is not None):
        raise typer.BadParameter("--undo goes without --timeout and --force")
    (Ticket(address) if address is not None else find_ticket()).join()
    from cluster.cli import out_of_service
    from cluster.cli.far_workers import FarWorkers  # which imports ray, and ray reads its token when it is imported
    from cluster.cli.progress import streams_shown

    workers = FarWorkers()
    if undo:
        print(f"{out_of_service.put_back(workers, replica).replica_id} is in service again")
        return
    take = out_of_service.force_out if force else out_of_service.take_out
    with streams_shown() as show:
        last = take(workers, replica, timeout, out_of_service.Watch(show, time.monotonic, time.sleep))
    _conclude(last)


def _conclude(last: "WorkerView") -> None:
    if last.live_legs:
        print(f"{last.replica_id} is out of service; {last.live_legs} of its streams stay: nobody else can take them")
        raise typer.Exit(1)
    print(f"{last.replica_id} is out of service, and nothing runs there")
