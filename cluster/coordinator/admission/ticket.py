"""What admission knows of a request: how much work it is, whose, how soon it should go, and how long it may wait."""

from math import inf

from cluster.coordinator.workers import GenerationRequest
from kvtransfer.tenant import NO_TENANT, Tenant, tenant_of
from routing.router import RouteRequest

OUTPUT_TOKENS = 256
"""Most tokens an output is taken to have: clients that set no limit ask for as many as the model's context holds."""


class Ticket:
    """One request at the door. Two tickets are never equal. `tokens` is its prompt and what it will probably make.

    It may wait `longest_s` until a replica begins with it, if that is less than everybody may. `wish` is what the
    router is asked for meanwhile.
    """

    __slots__ = ("arrived_at", "longest_s", "outputs", "priority", "tenant", "tokens", "wish")

    def __init__(
        self,
        tokens: int,
        outputs: int,
        arrived_at: float,
        priority: int = 0,
        tenant: Tenant = NO_TENANT,
        longest_s: float = inf,
    ) -> None:
        self.tokens = tokens
        self.outputs = outputs
        self.arrived_at = arrived_at
        self.priority = priority
        self.tenant = tenant
        self.longest_s = longest_s
        self.wish = RouteRequest("", tokens, 1, outputs)

    def __repr__(self) -> str:
        return f"<Ticket {self.tokens} tokens, {self.outputs} outputs, priority {self.priority}, {self.tenant.hex()}>"


def ticket_of(request: GenerationRequest, now: float, longest_s: float = inf) -> Ticket:
    """The ticket of a request that arrives now."""
    prompt_tokens = len(request.token_ids)
    tokens = prompt_tokens + request.outputs * min(request.max_tokens, OUTPUT_TOKENS)
    ticket = Ticket(tokens, request.outputs, now, request.priority, tenant_of(request.cache_salt), longest_s)
    ticket.wish = RouteRequest(
        request.request_id, prompt_tokens, request.max_tokens, request.outputs, request.may_disaggregate
    )
    return ticket
