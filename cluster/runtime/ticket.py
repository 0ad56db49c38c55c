"""How another command of the same user gets into a private Ray: its address and token, in the run's private folder.

The folder can be entered by its owner only, and goes with the run.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass

from cluster.runtime.folders import existing_runs, run_folder
from cluster.runtime.mark import RunMark

FILE = "join.json"


class NothingRuns(Exception):
    """There is no Ray to join."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What joining a Ray takes: `host:port` of its GCS and, where it asks for one, a token."""

    address: str
    token: str | None = None

    def join(self) -> None:
        """Connect this process, which has not imported ray yet, as a driver. Raises what `ray.init` raises."""
        if self.token is not None:
            assert "ray" not in sys.modules, "ray reads its token when it is imported"
            os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token})
        import ray

        ray.init(address=self.address, log_to_driver=False, logging_level="error", namespace="baton")


def leave_ticket(mark: RunMark, ticket: Ticket) -> None:
    """Let others of this user join the run; readable by the user alone."""
    path = run_folder(mark) / FILE
    unfinished = path.with_suffix(".part")
    with open(unfinished, "w", encoding="utf-8", opener=_private) as file:
        json.dump(asdict(ticket), file)
    unfinished.replace(path)  # whole or not there, whenever another command looks


def find_ticket() -> Ticket:
    """Of the only running `baton serve` of this user. Raises `NothingRuns` when there is none, or more than one."""
    found: list[Ticket] = []
    for mark in existing_runs():
        path = run_folder(mark) / FILE
        if mark.is_alive() and path.is_file():
            found.append(Ticket(**json.loads(path.read_text(encoding="utf-8"))))
    if len(found) != 1:
        many = f"{len(found)} runs of `baton serve` are up" if found else "no `baton serve` of yours is up"
        raise NothingRuns(f"{many}: name the Ray cluster with --address, e.g. --address auto")
    return found[0]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
