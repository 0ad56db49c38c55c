"""The requests of one priority that wait, taken in turns between tenants: deficit round robin on tokens.

After M. Shreedhar and G. Varghese, "Efficient fair queueing using deficit round robin" (1995). A tenant with something
waiting earns tokens at its weight and is served while it can pay for its oldest request, so that over any time two
waiting tenants get tokens in proportion to their weights, but for one request's each. Who has nothing waiting saves
nothing.

Invariant: every lane has something waiting, and `tokens` is their sum.
"""

from collections import OrderedDict
from collections.abc import Iterator
from math import ceil

from cluster.coordinator.admission.ticket import Ticket
from kvtransfer.tenant import Tenant

QUANTUM_TOKENS = 1
"""What a tenant of weight 1 earns in a round. Rounds in which nobody can pay cost nothing, so it may be small; and it
must be: a turn of many short requests lasts longer than those of another tenant may wait.
"""

_ROUNDING = 1e-9


class Lane:
    """What one tenant has waiting, the oldest first."""

    __slots__ = ("deficit", "tokens", "waiting", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.waiting: dict[Ticket, None] = {}
        self.tokens = 0
        self.deficit = 0.0

    @property
    def oldest(self) -> Ticket:
        """The next one to go."""
        return next(iter(self.waiting))

    @property
    def newest(self) -> Ticket:
        """The last one to go."""
        return next(reversed(self.waiting))

    @property
    def rounds(self) -> int:
        """Rounds until it can pay for its oldest."""
        return max(0, ceil((self.oldest.tokens - self.deficit) / (QUANTUM_TOKENS * self.weight) - _ROUNDING))


class FairClass:
    """Owns the lanes of one priority, in the order of their turns."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[Tenant, Lane] = OrderedDict()
        self.tokens = 0

    def __len__(self) -> int:
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def __contains__(self, ticket: Ticket) -> bool:
        return (lane := self._lanes.get(ticket.tenant)) is not None and ticket in lane.waiting

    def __iter__(self) -> Iterator[Ticket]:
        return (ticket for lane in self._lanes.values() for ticket in lane.waiting)

    def add(self, ticket: Ticket, weight: float) -> None:
        """Wait as the tenant's last. O(1)."""
        lane = self._lanes.get(ticket.tenant)
        if lane is None:
            lane = self._lanes[ticket.tenant] = Lane(weight)
        lane.waiting[ticket] = None
        lane.tokens += ticket.tokens
        self.tokens += ticket.tokens

    def remove(self, ticket: Ticket) -> None:
        """It does not wait any more, and has had nothing. O(1)."""
        lane = self._lanes[ticket.tenant]
        del lane.waiting[ticket]
        lane.tokens -= ticket.tokens
        self.tokens -= ticket.tokens
        if not lane.waiting:
            del self._lanes[ticket.tenant]

    def first(self) -> Ticket:
        """Whose turn it is: stays so until it is taken, or is removed. O(tenants)."""
        rounds = min(lane.rounds for lane in self._lanes.values())
        for lane in self._lanes.values():
            lane.deficit += rounds * QUANTUM_TOKENS * lane.weight
        while (lane := next(iter(self._lanes.values()))).rounds:
            self._lanes.move_to_end(next(iter(self._lanes)))
        return lane.oldest

    def take(self) -> Ticket:
        """The one whose turn it is goes, and pays."""
        ticket = self.first()
        self._lanes[ticket.tenant].deficit -= ticket.tokens
        self.remove(ticket)
        return ticket

    def ahead_of(self, ticket: Ticket, weight: float) -> float:
        """Tokens that go before a ticket that would wait now: its tenant's, and of others' as many as their share."""
        own = self._lanes.get(ticket.tenant)
        before = own.tokens if own is not None else 0
        until = (before + ticket.tokens) / weight
        return before + sum(min(lane.tokens, until * lane.weight) for lane in self._lanes.values() if lane is not own)

    def load(self, ticket: Ticket, weight: float) -> float:
        """What its tenant would have waiting for its weight, with it."""
        own = self._lanes.get(ticket.tenant)
        return ((own.tokens if own is not None else 0) + ticket.tokens) / weight

    def heaviest(self) -> Lane:
        """The tenant with the most waiting for its weight."""
        return max(self._lanes.values(), key=lambda lane: lane.tokens / lane.weight)

    def check(self) -> None:
        """Assert the invariant."""
        for tenant, lane in self._lanes.items():
            assert lane.waiting, f"an empty lane of {tenant.hex()}"
            assert lane.tokens == sum(ticket.tokens for ticket in lane.waiting)
            assert lane.deficit >= -_ROUNDING * QUANTUM_TOKENS * lane.weight, "a tenant took what it had not"
        assert self.tokens == sum(lane.tokens for lane in self._lanes.values())
