"""Takes a worker out of service and back, and watches its streams end: what `baton drain` does, through a seam.

Refuses to take out the last worker that decodes: nobody would be left to go on with its streams, or to begin any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import typer

LOOK_EVERY_S = 0.5
MOVING_S = 30.0
"""How long after its time to finish a worker is watched: whoever can be moved has been by then."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker now. `live_legs` are the streams it works on, `finish_s` is its own time to finish them."""

    replica_id: str
    role: str
    healthy: bool
    draining: bool
    live_legs: int
    finish_s: float

    @property
    def in_service(self) -> bool:
        """Whether it is given work."""
        return self.healthy and not self.draining

    def __str__(self) -> str:
        state = "" if self.in_service else " (draining)" if self.draining else " (unhealthy)"
        return f"{self.role} {self.replica_id}{state}"


class Workers(Protocol):
    """All workers of a service."""

    def views(self) -> Sequence[WorkerView]:
        """Of those that answer."""
        ...

    def drain(self, replica_id: str, finish_s: float | None) -> None:
        """Returns when the worker knows."""
        ...

    def undrain(self, replica_id: str) -> None:
        """Returns when the worker knows."""
        ...


@dataclass(frozen=True, slots=True)
class Watch:
    """How progress is shown and time passes."""

    show: Callable[[WorkerView], None]
    clock: Callable[[], float]
    sleep: Callable[[float], None]


def find(views: Sequence[WorkerView], name: str) -> WorkerView:
    """The worker whose id is `name`, or begins so. Raises `BadParameter` that says which there are."""
    found = [each for each in views if each.replica_id.startswith(name)]
    exact = [each for each in found if each.replica_id == name]
    if len(exact or found) != 1:
        problem = "begins the ids of more than one worker" if found else "is no worker"
        there = ", ".join(str(each) for each in sorted(found or views, key=str)) or "none"
        raise typer.BadParameter(f"{name!r} {problem}; there are: {there}")
    return (exact or found)[0]


def take_out(workers: Workers, name: str, finish_s: float | None, watch: Watch) -> WorkerView:
    """Drain a worker and return when nothing is live there, or nobody can take what is. Raises `BadParameter`."""
    one = find(workers.views(), name)
    _require_another(workers, one)
    workers.drain(one.replica_id, finish_s)
    try:
        _require_another(workers, one)  # somebody may have drained that at the same time
    except typer.BadParameter:
        workers.undrain(one.replica_id)
        raise
    return watch_out(workers, one, finish_s, watch)


def force_out(workers: Workers, name: str, finish_s: float | None, watch: Watch) -> WorkerView:
    """The same, whoever is left."""
    one = find(workers.views(), name)
    workers.drain(one.replica_id, finish_s)
    return watch_out(workers, one, finish_s, watch)


def put_back(workers: Workers, name: str) -> WorkerView:
    """In service again. Raises `BadParameter`."""
    one = find(workers.views(), name)
    if not one.draining:
        raise typer.BadParameter(f"{one} does not drain")
    workers.undrain(one.replica_id)
    return one


def watch_out(workers: Workers, one: WorkerView, finish_s: float | None, watch: Watch) -> WorkerView:
    """See it empty; as it was last seen. One that has gone is empty."""
    end = watch.clock() + (one.finish_s if finish_s is None else finish_s) + MOVING_S
    while True:
        now = {each.replica_id: each for each in workers.views()}
        if one.replica_id not in now:
            return _gone(one)
        one = now[one.replica_id]
        watch.show(one)
        if not one.live_legs or watch.clock() >= end:
            return one
        watch.sleep(LOOK_EVERY_S)


def _gone(one: WorkerView) -> WorkerView:
    return WorkerView(one.replica_id, one.role, healthy=False, draining=True, live_legs=0, finish_s=one.finish_s)


def _require_another(workers: Workers, one: WorkerView) -> None:
    others = [each for each in workers.views() if each.replica_id != one.replica_id]
    if one.role == "decode" and not any(each.role == "decode" and each.in_service for each in others):
        raise typer.BadParameter(
            f"{one} is the last worker in service that decodes: no request could be answered, and its streams could"
            " not go on elsewhere. --force takes it out all the same"
        )
