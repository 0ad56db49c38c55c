"""Takes out of vLLM's app what a gateway does not offer, or does itself, and what would cost every request.

Closed routes go, so that the API's own description is true, and the busy ones come first, because matching is a
search. Of the middlewares, one counts requests for vLLM's `/metrics` and one guards a scaling route; neither is open.
"""

import re
from typing import Any

from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware
from vllm.entrypoints.serve.elastic_ep.middleware import ScalingMiddleware

from cluster.gateway.routes import Shape, find

_UNUSED = (PrometheusInstrumentatorMiddleware, ScalingMiddleware)
_PARAMETER = re.compile(r"\{[^}]+\}")


def trim(app: Any) -> None:
    """`app` has not served a request yet."""
    opened = [(find(_PARAMETER.sub("resp_x", route.path)), route) for route in app.router.routes]
    kept = [(spec, route) for spec, route in opened if spec is not None]
    kept.sort(key=lambda each: each[0].shape is Shape.OTHER)
    app.router.routes[:] = [route for _, route in kept]
    app.user_middleware = [each for each in app.user_middleware if each.cls not in _UNUSED]
    app.middleware_stack = app.build_middleware_stack()
