"""A request that breaks what reads it is the client's fault.

Some of vLLM's request models look into a field before its type is known, so that a string where an object belongs
raises `AttributeError`. Pydantic lets that pass, and it would end as a 500. What makes a prompt of a valid model looks
into parts that need not be there, in the same way. Once a generation has begun, whatever breaks is ours.
"""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException

from cluster.gateway.asgi_types import Application, Receive, Scope, Send
from cluster.gateway.scope import current_scope

_log = logging.getLogger(__name__)
_BROKEN = (AttributeError, IndexError, KeyError, TypeError)

Validate = Callable[..., tuple[Any, list[dict[str, Any]]]]


def blame_the_client(app: Any) -> None:
    """Let every route of `app` answer 400 when validating breaks. It has not served a request yet."""
    for route in app.router.routes:
        for body in _bodies(route):
            body.validate = _refusing(body.validate)


def blame_the_prompt(app: Any) -> None:
    """And when making a prompt breaks; its routes are what they will be."""
    for route in app.router.routes:
        if _bodies(route):
            route.app = Prompting(route.app)


def _bodies(route: Any) -> Sequence[Any]:
    dependant = getattr(route, "dependant", None)
    return dependant.body_params if dependant is not None else ()


def _refusing(validate: Validate) -> Validate:
    def refuse(value: Any, values: Any = None, *, loc: tuple[int | str, ...] = ()) -> Any:
        try:
            return validate(value, values or {}, loc=loc)
        except _BROKEN:
            return None, [{"type": "value_error", "loc": loc, "msg": "a field is not of its type", "input": None}]

    return refuse


class Prompting:
    """A route that makes prompts of requests."""

    def __init__(self, route: Application) -> None:
        self.route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.route(scope, receive, send)
        except (*_BROKEN, AssertionError) as error:
            request = current_scope.get()
            if request is None or request.generates:
                raise
            _log.warning("%s: no prompt can be made of a request", scope["path"], exc_info=error)
            raise HTTPException(HTTPStatus.BAD_REQUEST, "no prompt can be made of this: a part is missing") from error
