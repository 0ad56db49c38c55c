"""`baton store`: what the nodes' KV stores hold, and tidying it up."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from cluster.cli.stores import NamedStore

app = typer.Typer(help="See and tidy what the nodes' KV stores hold.", no_args_is_help=True)

Node = Annotated[str | None, typer.Option(help="only this node's: how its id begins, or its host")]
Address = Annotated[str | None, typer.Option(help="the Ray cluster; default: the `baton serve` of this machine")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Limit = Annotated[int, typer.Option(help="the most blocks to show of each store", min=1)]
Keys = Annotated[list[str] | None, typer.Argument(help="how keys begin: 8 hexadecimal digits or more", metavar="KEY")]
Everything = Annotated[bool, typer.Option("--all", help="every block that nobody uses")]

T = TypeVar("T")


@app.callback()
def store() -> None:
    """See and tidy what the nodes' KV stores hold."""


@app.command()
def stats(node: Node = None, address: Address = None, as_json: Json = False) -> None:
    """Show each store's slots by state, what moved (blocks, bytes), why blocks went, and the longest holds (seconds).

    Counters begin anew when a store does.
    """
    from cluster.cli import store_tables, stores

    found = _ask(node, address, stores.statistics)
    print(store_tables.to_json(found) if as_json else store_tables.statistics(found))


@app.command("ls")
def list_blocks(node: Node = None, address: Address = None, limit: Limit = 50, as_json: Json = False) -> None:
    """Show the blocks in each store's arena: state, size (bytes), age (seconds), pins, and who is writing.

    Blocks that are on disk alone are not shown.
    """
    from cluster.cli import store_tables, stores

    found = _ask(node, address, lambda named: stores.listing(named, limit))
    print(store_tables.to_json(found) if as_json else store_tables.listing(found))


@app.command()
def drop(
    keys: Keys = None, everything: Everything = False, node: Node = None, address: Address = None, as_json: Json = False
) -> None:
    """Forget blocks. What is pinned or being written stays, and so does what is on disk alone."""
    from cluster.cli import store_tables, stores

    if bool(keys) == everything:
        raise typer.BadParameter("give keys, or --all")
    beginnings = [""] if everything else [_beginning(key) for key in keys or ()]
    found = _ask(node, address, lambda named: stores.drop(named, beginnings))
    print(store_tables.to_json(found) if as_json else store_tables.drops(found))


@app.command()
def verify(node: Node = None, address: Address = None, as_json: Json = False) -> None:
    """Compute the checksums of all blocks in the arenas, and forget corrupt ones. Exit code 1 when there were any.

    Stores serve on meanwhile: each looks at 64 MiB at a time. Blocks that are on disk alone are verified when they
    come back.
    """
    from cluster.cli import store_tables, stores
    from cluster.cli.progress import slots_shown

    with slots_shown() as report:
        found = _ask(node, address, lambda named: stores.verify(named, report))
    print(store_tables.to_json(found) if as_json else store_tables.verifications(found))
    if any(each.result.corrupt for each in found):
        raise typer.Exit(1)


def _beginning(key: str) -> str:
    if len(key) < 8 or not set(key.lower()) <= set("0123456789abcdef"):
        raise typer.BadParameter(f"{key!r} is not how a key begins: give 8 hexadecimal digits or more, as `ls` shows")
    return key.lower()


def _ask(node: str | None, address: str | None, question: "Callable[[Sequence[NamedStore]], Awaitable[T]]") -> T:
    from cluster.runtime.ticket import Ticket, find_ticket

    (Ticket(address) if address is not None else find_ticket()).join()
    from cluster.cli.store_actors import find_stores  # which imports ray, and ray reads its token when it is imported

    async def ask() -> T:
        return await question(await find_stores(node))

    return asyncio.run(ask())
