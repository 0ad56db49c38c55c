"""Which replicas could take a request at all, whatever it costs."""

from routing.fleet import Fleet, Replica, Role
from routing.router import RouteRequest


def fits(replica: Replica, request: RouteRequest, needed_tokens: int) -> bool:
    """Whether it has not failed this request yet and has room for so many tokens."""
    return replica.replica_id not in request.exclude and needed_tokens <= replica.max_model_len


def why_none(request: RouteRequest, fleet: Fleet) -> str:
    """Why no decode replica can take the request, for people."""
    ready = fleet.ready(Role.DECODE)
    if not ready:
        return "no decode replica is ready"
    untried = [r for r in ready if r.replica_id not in request.exclude]
    if not untried:
        return f"every ready decode replica ({len(ready)}) has failed this request, or would answer with other tokens"
    needed = request.prompt_tokens + request.max_tokens
    return f"no ready decode replica has room for {needed} tokens (at most {max(r.max_model_len for r in untried)})"
