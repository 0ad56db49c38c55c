"""The latest changes of how many workers there should be, kept in the Ray cluster's key-value store for its people.

Ray is imported in the functions: whoever only decides does without.
"""

import json
from dataclasses import asdict

from cluster.pools.scaling import ScalingChange

REMEMBERED = 32
_KEY = b"baton:scaling"


def remember(why: str, at_s: float) -> None:
    """One more; the oldest goes."""
    from ray.experimental import internal_kv

    changes = [*recall(), ScalingChange(at_s, why)][-REMEMBERED:]
    internal_kv._internal_kv_put(_KEY, json.dumps([asdict(change) for change in changes]).encode())


def recall() -> list[ScalingChange]:
    """All that are kept, the newest last."""
    from ray.experimental import internal_kv

    kept = internal_kv._internal_kv_get(_KEY)
    return [ScalingChange(**change) for change in json.loads(kept)] if kept else []
