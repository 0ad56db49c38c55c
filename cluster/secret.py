"""The cluster secret: what the configuration says, else one made once per Ray cluster and kept in its key-value store.

It never leaves the cluster and survives redeploys, so that replicas of an old and a new version understand each other.
"""

import secrets

import ray
from pydantic import SecretStr
from ray.experimental import internal_kv

_KEY = b"baton:cluster_secret"


def cluster_secret(configured: SecretStr | None) -> SecretStr:
    """The secret every replica of this cluster shares. Outside a cluster (`serve build`) a fresh one."""
    if configured is not None:
        return configured
    fresh = secrets.token_hex(32)
    if not ray.is_initialized():
        return SecretStr(fresh)
    internal_kv._internal_kv_put(_KEY, fresh.encode(), overwrite=False)
    kept = internal_kv._internal_kv_get(_KEY)
    return SecretStr(kept.decode() if kept is not None else fresh)
