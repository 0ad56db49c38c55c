"""The fleet as the cost model reads it: each replica's constants and last report as plain numbers, made once a report.

What changes with every placement, the ledger's accounts, is not in here.

Other gateways are seen through reports only, which come late. Between two reports of a replica the others are taken to
place what this gateway places there, in proportion to their share of all requests: they see the same fleet, so they
choose the same replicas. Without that, gateways that get bursts at the same time all send them to the same place.
"""

from collections.abc import Mapping
from typing import NamedTuple

from routing.account import IDLE, NEVER, Account, Given
from routing.fleet import Fleet, Replica, Role
from routing.rates import Metric, Rates

_REFRESH_S = 0.1
"""How long corrected rates may be out of date in a fleet that reports nothing."""

_SHARE_WEIGHT = 0.05
_MOST_SHARE = 16.0


class Standing:
    """One replica. Times are corrected by what was observed there.

    A prompt's `n` tokens after `c` take `token_s · n + attention_s · n · (c + n / 2)` seconds and, for each chunk, a
    step. `others_requests` and `others_prefill_s` are other gateways' work; `others_blocks` are device blocks held that
    this gateway did not reserve, as of the last report.
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
        "reported_prefill_s",
        "reported_requests",
        "seen_prefill_s",
        "seen_requests",
        "step_context_s",
        "step_request_s",
        "step_s",
        "token_s",
    )

    def __init__(self, replica: Replica, rates: Rates) -> None:
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
        token_s = self.token_s + self.chunk_s / self.chunk_tokens
        self.others_requests = self.reported_requests = float(replica.load.others_requests)
        self.others_prefill_s = self.reported_prefill_s = replica.load.others_prefill_tokens * token_s
        self.others_blocks = 0.0
        self.seen_requests = 0
        self.seen_prefill_s = 0.0

    def reported(self, account: Account, given: Given) -> None:
        """The report is new: what this gateway has placed so far is in it."""
        load = self.replica.load
        self.others_blocks = max(0.0, load.kv_usage * self.kv_blocks - account.blocks)
        self.seen_requests, self.seen_prefill_s = given.requests, given.prefill_s

    def still(self, known: "Standing") -> None:
        """The report is the one that `known` was made from."""
        self.others_blocks = known.others_blocks
        self.seen_requests, self.seen_prefill_s = known.seen_requests, known.seen_prefill_s

    def expect(self, given: Given, share: float) -> None:
        """Since the report, others placed `share` times what this gateway placed."""
        self.others_requests = self.reported_requests + share * (given.requests - self.seen_requests)
        self.others_prefill_s = self.reported_prefill_s + share * (given.prefill_s - self.seen_prefill_s)


class Remote(NamedTuple):
    """Blocks that move between nodes: a latency, and seconds a token."""

    latency_s: float
    token_s: float


class Standings:
    """Keeps the standings of the latest fleet. `prefills` and `decodes` hold the ready ones, in a stable order.

    `share` is how many requests the other gateways have for each of this one's, as reports show it over time.
    """

    def __init__(self, rates: Rates, accounts: Mapping[str, Account], given: Mapping[str, Given]) -> None:
        profile = rates.profile
        self.remote = Remote(profile.remote_latency_s, profile.kv_bytes_per_token / profile.remote_bytes_per_s)
        self.prefills: list[Standing] = []
        self.decodes: list[Standing] = []
        self.share = 0.0
        self._rates = rates
        self._accounts = accounts
        self._given = given
        self._by_id: dict[str, Standing] = {}
        self._fleet: Fleet | None = None
        self._version = -1
        self._made_at = float("-inf")

    def look(self, fleet: Fleet, now: float) -> None:
        """Bring everything up to date with `fleet`, the rates, and what was placed."""
        stale = self._version != self._rates.version and now - self._made_at >= _REFRESH_S
        if fleet is not self._fleet or stale:
            self._by_id = {replica_id: self._standing(replica) for replica_id, replica in fleet.replicas.items()}
            self.prefills = [self._by_id[replica.replica_id] for replica in fleet.ready(Role.PREFILL)]
            self.decodes = [self._by_id[replica.replica_id] for replica in fleet.ready(Role.DECODE)]
            self._fleet, self._version, self._made_at = fleet, self._rates.version, now
            self._learn_share()
        if self.share:
            for standing in self._by_id.values():
                standing.expect(self._given.get(standing.replica_id, NEVER), self.share)

    def _standing(self, replica: Replica) -> Standing:
        standing, known = Standing(replica, self._rates), self._by_id.get(replica.replica_id)
        if known is not None and known.replica.load == replica.load:
            standing.still(known)
        else:
            given = self._given.get(replica.replica_id, NEVER)
            standing.reported(self._accounts.get(replica.replica_id, IDLE), given)
        return standing

    def _learn_share(self) -> None:
        others = sum(standing.reported_requests for standing in self.decodes)
        own = sum(account.requests for account in self._accounts.values())
        if others or own:
            share = min(others / own, _MOST_SHARE) if own else _MOST_SHARE
            self.share += _SHARE_WEIGHT * (share - self.share)
