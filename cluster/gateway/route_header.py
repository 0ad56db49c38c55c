"""`x-baton-route`: where an answer was made, and what of its time to first token was predicted. Off by default.

It tells a client which replicas there are and what they have cached, so it is for people who tune a deployment. It
goes out with the answer's first byte, which follows the first token: predicted and actual stand side by side.
"""

from contextvars import ContextVar

from cluster.coordinator.placement import Placement
from cluster.gateway.asgi_types import Application, Message, Receive, Scope, Send

HEADER = b"x-baton-route"

_asked: ContextVar[list[Placement] | None] = ContextVar("asked_placement", default=None)


def claim_placement() -> Placement | None:
    """To be filled in by whoever claims it, if anybody wants to know: the first of several prompts in a request."""
    asked = _asked.get()
    return asked.pop() if asked else None


class RouteHeader:
    """An ASGI application around `app` that adds the header."""

    def __init__(self, app: Application, routes: object) -> None:
        self._app = app
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        placement = Placement()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start" and placement.decision is not None:
                message["headers"] = [*message["headers"], (HEADER, describe(placement).encode("latin-1", "replace"))]
            await send(message)

        token = _asked.set([placement])
        try:
            await self._app(scope, receive, tell)
        finally:
            _asked.reset(token)


def describe(placement: Placement) -> str:
    """`name=value` pairs; seconds and tokens. What was predicted bears its name in `Predicted`, `ttft_s` is actual."""
    decision = placement.decision
    assert decision is not None, "it was routed"
    parts: dict[str, object] = {"decode": decision.decode}
    if decision.prefill is not None:
        parts["prefill"] = decision.prefill
    if decision.fetch is not None:
        tokens = decision.fetch.end_tokens - decision.fetch.start_tokens
        parts |= {"fetched_from": decision.fetch.node_id, "fetched_tokens": tokens}
    if placement.ttft_s is not None:
        parts |= {"ttft_s": f"{placement.ttft_s:.6f}", "decode_cached_tokens": placement.cached_tokens}
    predicted = decision.predicted
    if predicted is not None:
        parts["predicted_ttft_s"] = f"{predicted.ttft_s:.6f}"
        for name in ("queue_s", "compute_s", "load_s", "first_step_s", "itl_s"):
            parts[name] = f"{getattr(predicted, name):.6f}"
        parts |= {"computed_tokens": predicted.computed_tokens, "cached_tokens": predicted.cached_tokens}
    return "; ".join(f"{name}={value}" for name, value in parts.items())


def parse(header: str) -> dict[str, str]:
    """What `describe` wrote."""
    return dict(pair.split("=", 1) for pair in header.split("; "))
