"""What admission knows of a request: how much work it is, whose, and how soon it should go."""

from cluster.coordinator.workers import GenerationRequest
from kvtransfer.tenant import NO_TENANT, Tenant, tenant_of

OUTPUT_TOKENS = 256
"""Most tokens an output is taken to have: clients that set no limit ask for as many as the model's context holds."""


class Ticket:
    """One request at the door. Two tickets are never equal. `tokens` is its prompt and what it will probably make."""

    __slots__ = ("arrived_at", "outputs", "priority", "tenant", "tokens")

    def __init__(self, tokens: int, outputs: int, arrived_at: float, priority: int = 0, tenant: Tenant = NO_TENANT):
        self.tokens = tokens
        self.outputs = outputs
        self.arrived_at = arrived_at
        self.priority = priority
        self.tenant = tenant

    def __repr__(self) -> str:
        return f"<Ticket {self.tokens} tokens, {self.outputs} outputs, priority {self.priority}, {self.tenant.hex()}>"


def ticket_of(request: GenerationRequest, now: float) -> Ticket:
    """The ticket of a request that arrives now."""
    tokens = len(request.token_ids) + request.outputs * min(request.max_tokens, OUTPUT_TOKENS)
    return Ticket(tokens, request.outputs, now, request.priority, tenant_of(request.cache_salt))
