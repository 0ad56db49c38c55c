"""Which routes of vLLM's app are open. Everything else is as if it did not exist.

vLLM registers administration beside inference (scaling, weights, profiling, LoRA), and its API key guards only part
of it, so what is open is a list of what is allowed.
"""

import re
from dataclasses import dataclass
from enum import Enum

_READ = frozenset({"GET", "OPTIONS"})
_CREATE = frozenset({"POST", "OPTIONS"})


class Shape(Enum):
    """Whose specification a route's bodies follow."""

    OTHER = "other"
    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSE = "response"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Route:
    """An open route."""

    methods: frozenset[str]
    shape: Shape = Shape.OTHER


_EXACT = {
    "/v1/chat/completions": Route(_CREATE, Shape.CHAT),
    "/v1/chat/completions/batch": Route(_CREATE, Shape.CHAT),
    "/v1/completions": Route(_CREATE, Shape.COMPLETION),
    "/v1/responses": Route(_CREATE, Shape.RESPONSE),
    "/v1/messages": Route(_CREATE, Shape.MESSAGE),
    "/v1/messages/count_tokens": Route(_CREATE, Shape.MESSAGE),
    "/tokenize": Route(_CREATE),
    "/detokenize": Route(_CREATE),
    "/v1/models": Route(_READ),
    "/health": Route(_READ),
    "/version": Route(_READ),
    "/metrics": Route(_READ),
    "/docs": Route(_READ),
    "/docs/oauth2-redirect": Route(_READ),
    "/redoc": Route(_READ),
    "/openapi.json": Route(_READ),
}
_PATTERNS = (
    (re.compile(r"/v1/responses/resp_[^/]+"), Route(_READ, Shape.RESPONSE)),
    (re.compile(r"/v1/responses/resp_[^/]+/cancel"), Route(_CREATE, Shape.RESPONSE)),
)


def find(path: str) -> Route | None:
    """The open route of a path, None when it is closed."""
    exact = _EXACT.get(path)
    if exact is not None:
        return exact
    return next((route for pattern, route in _PATTERNS if pattern.fullmatch(path)), None)
