"""A replica as the pool controller sees it. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass

from routing.fleet import Replica, Role


@dataclass(frozen=True, slots=True)
class Member:
    """`replica.role` is what it does now, `home` what it was started for. One that is `pinned` keeps its role."""

    replica: Replica
    home: Role
    pinned: bool = False

    @property
    def role(self) -> Role:
        """What the router may send it."""
        return self.replica.role

    @property
    def is_lent(self) -> bool:
        """Whether it does something else than it was started for."""
        return self.role is not self.home


def of_role(members: Sequence[Member], role: Role) -> list[Member]:
    """Those that may be given such work."""
    return [member for member in members if member.role is role and member.replica.ready]
