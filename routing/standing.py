"""The fleet as the cost model reads it: each replica's constants and last report as plain numbers, made once a report.

What changes with every placement, the ledger's accounts, is not in here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from routing.account import Account
from routing.fleet import Fleet, Replica, Role
from routing.rates import Metric, Rates

_REFRESH_S = 0.1
"""How long corrected rates may be out of date in a fleet that reports nothing."""


class Standing:
    """One replica. Times are corrected by what was observed there.

    A prompt's `n` tokens after `c` take `token_s · n + attention_s · n · (c + n / 2)` seconds and, for each chunk, a
    step. `others_blocks` are device blocks held that this gateway did not reserve, as of the last report.
    """

    __slots__ = (
        "attention_s",
        "block_size",
        "chunk_s",
        "chunk_tokens",
        "fingerprint",
        "host_latency_s",
        "host_token_s",
        "kv_blocks",
        "max_model_len",
        "max_running",
        "node_id",
        "others_blocks",
        "others_prefill_s",
        "others_requests",
        "replica",
        "replica_id",
        "step_context_s",
        "step_request_s",
        "step_s",
        "token_s",
    )

    def __init__(self, replica: Replica, rates: Rates, others_blocks: float) -> None:
        profile = rates.profile
        self.replica = replica
        self.replica_id = replica.replica_id
        self.node_id = replica.node_id
        self.fingerprint = replica.kv_fingerprint
        self.block_size = replica.block_size_tokens
        self.max_model_len = replica.max_model_len
        self.kv_blocks = replica.kv_blocks
        self.chunk_tokens = profile.chunk_tokens
        self.max_running = profile.max_running
        slower = rates.factor(replica.replica_id, replica.role, Metric.PREFILL)
        self.token_s = profile.prefill_token_s * slower
        self.attention_s = profile.prefill_attention_s * slower
        self.chunk_s = profile.prefill_step_s * slower
        slower = rates.factor(replica.replica_id, replica.role, Metric.LOAD)
        self.host_latency_s = profile.host_latency_s * slower
        self.host_token_s = profile.kv_bytes_per_token / profile.host_bytes_per_s * slower
        slower = rates.factor(replica.replica_id, replica.role, Metric.STEP)
        self.step_s = profile.decode_step_s * slower
        self.step_request_s = profile.decode_request_s * slower
        self.step_context_s = profile.decode_context_token_s * slower
        self.others_requests = replica.load.others_requests
        self.others_prefill_s = replica.load.others_prefill_tokens * (self.token_s + self.chunk_s / self.chunk_tokens)
        self.others_blocks = others_blocks


class Remote(NamedTuple):
    """Blocks that move between nodes: a latency, and seconds a token."""

    latency_s: float
    token_s: float


class Standings:
    """Keeps the standings of the latest fleet. `prefills` and `decodes` hold the ready ones, in a stable order."""

    def __init__(self, rates: Rates, accounts: Mapping[str, Account]) -> None:
        self.prefills: list[Standing] = []
        self.decodes: list[Standing] = []
        profile = rates.profile
        self.remote = Remote(profile.remote_latency_s, profile.kv_bytes_per_token / profile.remote_bytes_per_s)
        self._rates = rates
        self._accounts = accounts
        self._by_id: dict[str, Standing] = {}
        self._fleet: Fleet | None = None
        self._version = -1
        self._made_at = float("-inf")

    def look(self, fleet: Fleet, now: float) -> None:
        """Bring everything up to date with `fleet` and the rates."""
        stale = self._version != self._rates.version and now - self._made_at >= _REFRESH_S
        if fleet is self._fleet and not stale:
            return
        self._by_id = {replica_id: self._standing(replica) for replica_id, replica in fleet.replicas.items()}
        self.prefills = [self._by_id[replica.replica_id] for replica in fleet.ready(Role.PREFILL)]
        self.decodes = [self._by_id[replica.replica_id] for replica in fleet.ready(Role.DECODE)]
        self._fleet, self._version, self._made_at = fleet, self._rates.version, now

    def _standing(self, replica: Replica) -> Standing:
        known = self._by_id.get(replica.replica_id)
        if known is not None and known.replica.load == replica.load:
            return Standing(replica, self._rates, known.others_blocks)
        account = self._accounts.get(replica.replica_id)
        own_blocks = account.blocks if account is not None else 0
        return Standing(replica, self._rates, max(0.0, replica.load.kv_usage * replica.kv_blocks - own_blocks))
