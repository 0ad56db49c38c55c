"""Replicas as pool controllers see them, with the load that a test wants."""

from cluster.pools.member import Member
from routing.fleet import Replica, ReplicaLoad, Role
from routing.profile import Profile

BLOCK_TOKENS = 64
KV_BLOCKS = 16_384
PROFILE = Profile(
    prefill_step_s=0.0,
    prefill_token_s=1e-4,
    prefill_attention_s=0.0,
    chunk_tokens=8_192,
    decode_step_s=5e-3,
    decode_request_s=1e-3,
    decode_context_token_s=0.0,
    max_running=256,
    kv_bytes_per_token=1,
    host_bytes_per_s=1e9,
    host_latency_s=0.0,
    remote_bytes_per_s=1e9,
    remote_latency_s=0.0,
)
"""A second computes 10,000 prompt tokens; a step takes 5 ms and one more for each request."""

IDLE = ReplicaLoad()


def member(
    name: str, role: Role, load: ReplicaLoad = IDLE, home: Role | None = None, pinned: bool = False, ready: bool = True
) -> Member:
    """One replica, at home unless told otherwise."""
    replica = Replica(name, role, "node", "kv", BLOCK_TOKENS, 131_072, KV_BLOCKS, ready, load)
    return Member(replica, home or role, pinned)


def computing(tokens: int) -> ReplicaLoad:
    """A replica with so much of prompts to compute."""
    return ReplicaLoad(running=1, queued_prefill_tokens=tokens)


def decoding(requests: int, kv_usage: float = 0.1) -> ReplicaLoad:
    """A replica that makes tokens for so many."""
    return ReplicaLoad(running=requests, kv_usage=kv_usage)
