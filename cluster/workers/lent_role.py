"""What a worker is asked to do now, and who said so: the role of its pool until it is lent to the other one.

The role is the worker's own, so that all gateways agree and nothing is lost with whoever decided: they read it from the
worker. An order of the pool controller names the change it knew of (`epoch`), so that of two controllers that think
alike at the same moment one is passed by. By hand a worker is lent whatever it was, and may be pinned.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cluster.dataplane.frames import Role, TakeRole

REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class RoleChange:
    """`at_s` is a Unix time."""

    at_s: float
    role: Role
    pinned: bool
    why: str

    def __str__(self) -> str:
        return f"{'pinned to' if self.pinned else 'now does'} {self.role}: {self.why}"


class LentRole:
    """One worker's. `changed` is called after each change; `history` is the latest ones, the newest last."""

    def __init__(self, home: Role, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        self.home: Role = home
        self.role: Role = home
        self.epoch = 0
        self.pinned = False
        self.history: deque[RoleChange] = deque(maxlen=REMEMBERED)
        self._changed = changed
        self._clock = clock

    def __repr__(self) -> str:
        return f"<LentRole {self.role} home={self.home} epoch={self.epoch} pinned={self.pinned}>"

    def take(self, order: TakeRole) -> None:
        """The pool controller's order. One that is late, or for a worker that is pinned, changes nothing."""
        if order.epoch == self.epoch and not self.pinned and order.role != self.role:
            self._set(order.role, False, order.why)

    def lend(self, role: Role, pinned: bool, why: str) -> None:
        """By hand."""
        self._set(role, pinned, why)

    def _set(self, role: Role, pinned: bool, why: str) -> None:
        self.role, self.pinned = role, pinned
        self.epoch += 1
        self.history.append(RoleChange(self._clock(), role, pinned, why))
        self._changed()
