"""The fleet that a chaos run is let loose on: simulated engines on two Ray nodes, prefill on one, decode on the other.

Steps are slow, so that sixty streams leave two cores time for what is killed to start again. Caches are small and
stores forget hand-offs early, so that all are full, and memory is at its level, after a minute. While workers are
gone the others have too much to do: requests wait longer than interactive users would, and none is refused.
"""

from collections.abc import Mapping

from configs.schema import BatonConfig
from tests.support.serving import config_of

ENGINE = {
    "kind": "simulated",
    "block_size": 16,
    "device_blocks": 1024,
    "kv_bytes_per_token": 256,
    "prefill_tokens_per_s": 3000,
    "decode_step_s": 0.06,
    "decode_request_s": 0.0005,
}


def fleet(model_path: str, prefill: int, decode: int, engine: Mapping[str, object] = ENGINE) -> BatonConfig:
    """So many workers of each kind, and a store on each node."""
    pools = {
        name: {"replicas": replicas, "engine": dict(engine), "label_selector": {"node": node}}
        for name, replicas, node in (("prefill", prefill, "a"), ("decode", decode, "b"))
    }
    return config_of(
        "simulated.yaml",
        model={"path": model_path, "served_name": "tiny"},
        gateway={"admission": {"max_wait_s": 60}},
        store={"bytes": "8MiB", "handoff_ttl_s": 20},
        **pools,
    )
