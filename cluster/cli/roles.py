"""Lends workers between the roles by hand, and says who does what and why: what `baton pools` does, through a seam.

Refuses to lend the last worker that decodes: nobody would be left to answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import typer

from cluster.dataplane.frames import Role
from cluster.pools.controller import whom
from cluster.pools.member import Member
from cluster.pools.scaling import ScalingChange
from cluster.workers.lent_role import RoleChange
from routing.fleet import Replica, ReplicaLoad
from routing.fleet import Role as RoutedRole

BY_HAND = "by hand"


@dataclass(frozen=True, slots=True)
class RoleView:
    """One worker now: started for `home`, it does `role`."""

    replica_id: str
    home: Role
    role: Role
    pinned: bool
    role_history: Sequence[RoleChange]
    healthy: bool
    draining: bool
    running: int
    waiting: int
    held: int
    queued_prefill_tokens: int
    kv_usage: float

    @property
    def in_service(self) -> bool:
        """Whether it is given work."""
        return self.healthy and not self.draining

    def member(self) -> Member:
        """For whoever chooses."""
        load = ReplicaLoad(self.running, self.waiting, self.held, self.queued_prefill_tokens, self.kv_usage)
        replica = Replica(self.replica_id, RoutedRole(self.role), "", "", 1, 1, ready=self.in_service, load=load)
        return Member(replica, RoutedRole(self.home), self.pinned)


class LendableWorkers(Protocol):
    """All workers of a service."""

    def views(self) -> Sequence[RoleView]:
        """Of those that answer."""
        ...

    def lend(self, replica_id: str, role: Role, pinned: bool, why: str) -> None:
        """Returns when the worker knows."""
        ...


def lend(workers: LendableWorkers, count: int, to: Role, pinned: bool) -> list[str]:
    """Lend `count` of the others, those with least to finish first. Their ids; raises `BadParameter`."""
    views = workers.views()
    members = [view.member() for view in views]
    able = [member.replica.replica_id for member in whom(members, RoutedRole(to))]
    spare = len(able) - (1 if to == "prefill" and not _pinned_decoders(views) else 0)
    if count > spare:
        keeps = ": one has to decode" if to == "prefill" else ""
        raise typer.BadParameter(f"{count} cannot be lent to {to}, only {max(0, spare)}{keeps}")
    for replica_id in able[:count]:
        workers.lend(replica_id, to, pinned, BY_HAND)
    return able[:count]


def lend_one(workers: LendableWorkers, name: str, to: Role, pinned: bool) -> str:
    """Lend the worker whose id is `name` or begins so, pinned to what it does now or not. Raises `BadParameter`."""
    views = workers.views()
    found = [view for view in views if view.replica_id.startswith(name)]
    if len(found) != 1:
        there = ", ".join(view.replica_id for view in views)
        raise typer.BadParameter(f"{name!r} names {len(found)} workers; there are: {there}")
    one = found[0]
    others = [view for view in views if view is not one and view.role == "decode" and view.in_service]
    if one.role == "decode" and to == "prefill" and not others:
        raise typer.BadParameter(f"{one.replica_id} is the last worker in service that decodes")
    workers.lend(one.replica_id, to, pinned, BY_HAND)
    return one.replica_id


def unpin(workers: LendableWorkers) -> list[str]:
    """Let all that are pinned go; they do what they did. Their ids."""
    pinned = [view for view in workers.views() if view.pinned]
    for view in pinned:
        workers.lend(view.replica_id, view.role, False, "unpinned by hand")
    return [view.replica_id for view in pinned]


def table(views: Sequence[RoleView]) -> str:
    """Who does what, a line each, and in sum."""
    doing = [view.role for view in views if view.in_service]
    lines = [f"{doing.count('prefill')}P{doing.count('decode')}D in service"]
    return "\n".join([*lines, *(_line(view) for view in sorted(views, key=lambda v: (v.role, v.replica_id)))])


def history(views: Sequence[RoleView], scalings: Sequence[ScalingChange]) -> str:
    """The changes that workers remember, and those of how many there are, the newest last."""
    made = [(change.at_s, view.replica_id, str(change)) for view in views for change in view.role_history]
    made += [(change.at_s, "pools", change.why) for change in scalings]
    return "\n".join(
        f"{datetime.fromtimestamp(at_s):%Y-%m-%d %H:%M:%S} {replica_id:10} {change}"
        for at_s, replica_id, change in sorted(made, key=lambda each: each[:2])
    )


def _line(view: RoleView) -> str:
    marks = [f"lent, started for {view.home}"] if view.role != view.home else []
    marks += ["pinned"] if view.pinned else []
    marks += [] if view.in_service else ["draining" if view.draining else "unhealthy"]
    work = f"{view.running} running, {view.waiting} waiting, {view.held} held"
    load = f"{work}, {view.queued_prefill_tokens} prompt tokens queued, KV {100 * view.kv_usage:.0f} %"
    return f"  {view.role:8} {view.replica_id:10} {load}{''.join(f'; {mark}' for mark in marks)}"


def _pinned_decoders(views: Sequence[RoleView]) -> bool:
    return any(view.pinned and view.role == "decode" and view.in_service for view in views)
