"""The requests that wait at a gateway's door: by priority, then fairly between tenants, bounded in all.

A lower priority number goes sooner, as in vLLM. When the line is full a newcomer pushes out the newest request of
a later class, or of a tenant of its own class that has more waiting for its weight: a greedy tenant fills the line only
as long as nobody else comes.

Invariant: at most `max_requests` wait, with at most `max_tokens` between them unless it is a single one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.coordinator.admission.fair_class import FairClass
from cluster.coordinator.admission.ticket import Ticket
from kvtransfer.tenant import Tenant


@dataclass(frozen=True, slots=True)
class LineSettings:
    """Bounds of what waits, and tenants' shares: 1.0 where not named."""

    max_requests: int = 2048
    max_tokens: int = 4_000_000
    weights: Mapping[Tenant, float] = field(default_factory=dict)


class Line:
    """Owns what waits."""

    def __init__(self, settings: LineSettings) -> None:
        self._settings = settings
        self._classes: dict[int, FairClass] = {}
        self._requests = 0
        self.tokens = 0

    def __len__(self) -> int:
        return self._requests

    def __contains__(self, ticket: Ticket) -> bool:
        return (its := self._classes.get(ticket.priority)) is not None and ticket in its

    def add(self, ticket: Ticket) -> None:
        """Wait. There is room for it: see `crowded_out`."""
        its = self._classes.get(ticket.priority)
        if its is None:
            its = self._classes[ticket.priority] = FairClass()
        its.add(ticket, self._weight(ticket.tenant))
        self._count(ticket, 1)

    def remove(self, ticket: Ticket) -> None:
        """It does not wait any more."""
        self._classes[ticket.priority].remove(ticket)
        self._left(ticket)

    def first(self) -> Ticket | None:
        """Who goes next; None when nobody waits."""
        return self._classes[min(self._classes)].first() if self._classes else None

    def take(self) -> Ticket:
        """The first one goes. Somebody waits."""
        ticket = self._classes[min(self._classes)].take()
        self._left(ticket)
        return ticket

    def ahead_of(self, ticket: Ticket) -> float:
        """Tokens that would go before it if it waited now, and nobody else came."""
        sooner = sum(each.tokens for priority, each in self._classes.items() if priority < ticket.priority)
        its = self._classes.get(ticket.priority)
        return sooner + (its.ahead_of(ticket, self._weight(ticket.tenant)) if its is not None else 0.0)

    def crowded_out(self, ticket: Ticket) -> list[Ticket] | None:
        """Who has to go, so that `ticket` may wait: removed from the line. None: nobody has less right to wait."""
        out: list[Ticket] = []
        while not self._has_room(ticket):
            worst = self._worst(ticket)
            if worst is None:
                for each in reversed(out):
                    self.add(each)
                return None
            self.remove(worst)
            out.append(worst)
        return out

    def by_priority(self) -> Mapping[int, FairClass]:
        """What waits, by priority; for reading only."""
        return self._classes

    def check(self) -> None:
        """Assert the invariant."""
        for each in self._classes.values():
            assert len(each), "an empty class"
            each.check()
        assert self._requests == sum(len(each) for each in self._classes.values()) <= self._settings.max_requests
        assert self.tokens == sum(each.tokens for each in self._classes.values())
        assert self._requests <= 1 or self.tokens <= self._settings.max_tokens

    def _has_room(self, ticket: Ticket) -> bool:
        if self._requests >= self._settings.max_requests:
            return False
        return self._requests == 0 or self.tokens + ticket.tokens <= self._settings.max_tokens

    def _worst(self, ticket: Ticket) -> Ticket | None:
        """The one with less right to wait than `ticket`, if there is one."""
        if not self._classes or (last := max(self._classes)) < ticket.priority:
            return None
        lane = self._classes[last].heaviest()
        if last == ticket.priority:
            mine = self._classes[last].load(ticket, self._weight(ticket.tenant))
            if lane.tokens / lane.weight <= mine:
                return None
        return lane.newest

    def _weight(self, tenant: Tenant) -> float:
        return self._settings.weights.get(tenant, 1.0)

    def _left(self, ticket: Ticket) -> None:
        self._count(ticket, -1)
        if not self._classes[ticket.priority].tokens:
            del self._classes[ticket.priority]

    def _count(self, ticket: Ticket, change: int) -> None:
        self._requests += change
        self.tokens += change * ticket.tokens
