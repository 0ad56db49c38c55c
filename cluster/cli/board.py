"""Shows replicas on their way up: a table that is redrawn on a terminal, a line for each change elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from cluster.cli.replicas import ApplicationView, ReplicaView

if TYPE_CHECKING:
    from rich.live import Live


class Board(Protocol):
    """Takes every view in order."""

    def show(self, view: ApplicationView) -> None:
        """Show the newest view."""
        ...


@contextmanager
def board() -> Iterator[Board]:
    """The board that fits standard output, until the block ends."""
    if not sys.stdout.isatty():
        yield Lines()
        return
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        yield _Table(live)


def elapsed(replica: ReplicaView, now_s: float) -> str:
    """How long a replica has been there, as `12 s`; nothing for one that is not."""
    return "" if replica.since_s is None else f"{max(0.0, now_s - replica.since_s):.0f} s"


class Lines:
    """A line whenever a replica's state changes, and when it is gone."""

    def __init__(self, known: Sequence[ReplicaView] = ()) -> None:
        self._known = {(one.deployment, one.replica_id): one.state for one in known}

    def show(self, view: ApplicationView) -> None:
        self._show_gone(view)
        for replica in view.replicas:
            key = replica.deployment, replica.replica_id
            if self._known.get(key) != replica.state:
                self._known[key] = replica.state
                name = f"{replica.deployment} {replica.replica_id}".strip()
                print(f"{name}: {replica.state} {elapsed(replica, time.time())}".strip(), flush=True)

    def _show_gone(self, view: ApplicationView) -> None:
        """Those of a listed deployment that are not listed: Serve's controller lists nothing while it recovers."""
        deployments = {one.deployment for one in view.replicas}
        listed = {(one.deployment, one.replica_id) for one in view.replicas}
        for deployment, replica_id in [key for key in self._known if key not in listed and key[0] in deployments]:
            del self._known[deployment, replica_id]
            if replica_id:
                print(f"{deployment} {replica_id}: gone", flush=True)


class _Table:
    """One row for each replica; the elapsed time of a ready one stands still."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._ready: dict[str, str] = {}

    def show(self, view: ApplicationView) -> None:
        from rich.table import Table

        table = Table("worker", "replica", "state", "elapsed", box=None, pad_edge=False)
        for replica in view.replicas:
            shown = elapsed(replica, time.time())
            if replica.state == "ready":
                shown = self._ready.setdefault(replica.replica_id, shown)
            table.add_row(replica.deployment, replica.replica_id, replica.state, shown)
        self._live.update(table)
