"""A body that breaks its own validation is the client's fault.

Some of vLLM's request models look into a field before its type is known, so that a string where an object belongs
raises `AttributeError`. Pydantic lets that pass, and it would end as a 500.
"""

from collections.abc import Callable
from typing import Any

_BROKEN = (AttributeError, IndexError, KeyError, TypeError)

Validate = Callable[..., tuple[Any, list[dict[str, Any]]]]


def blame_the_client(app: Any) -> None:
    """Let every route of `app` answer 400 instead. It has not served a request yet."""
    for route in app.router.routes:
        dependant = getattr(route, "dependant", None)
        for body in dependant.body_params if dependant is not None else ():
            body.validate = _refusing(body.validate)


def _refusing(validate: Validate) -> Validate:
    def refuse(value: Any, values: Any = None, *, loc: tuple[int | str, ...] = ()) -> Any:
        try:
            return validate(value, values or {}, loc=loc)
        except _BROKEN:
            return None, [{"type": "value_error", "loc": loc, "msg": "a field is not of its type", "input": None}]

    return refuse
