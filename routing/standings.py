"""All replicas' standings, kept up to date with the fleet, with what was learnt of rates, and with other gateways."""

from collections.abc import Mapping
from typing import NamedTuple

from routing.account import IDLE, NEVER, Account, Given
from routing.fleet import Fleet, Replica, Role
from routing.rates import Metric, Rates
from routing.standing import Kind, Standing

_REFRESH_S = 0.1
"""How long corrected rates may be out of date in a fleet that reports nothing."""

_SHARE_WEIGHT = 0.05
_MOST_SHARE = 16.0


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
        self._kinds: dict[Kind, Kind] = {}
        self._fleet: Fleet | None = None
        self._version = -1
        self._made_at = float("-inf")

    def look(self, fleet: Fleet, now: float) -> None:
        """Bring everything up to date with `fleet`, the rates, and what was placed."""
        stale = self._version != self._rates.version and now - self._made_at >= _REFRESH_S
        if fleet is not self._fleet or stale:
            self._kinds = {}
            self._by_id = {replica_id: self._standing(replica) for replica_id, replica in fleet.replicas.items()}
            self.prefills = [self._by_id[replica.replica_id] for replica in fleet.ready(Role.PREFILL)]
            self.decodes = [self._by_id[replica.replica_id] for replica in fleet.ready(Role.DECODE)]
            self._fleet, self._version, self._made_at = fleet, self._rates.version, now
            self._learn_share()
        if self.share:
            for standing in self._by_id.values():
                standing.expect(self._given.get(standing.replica_id, NEVER), self.share)

    def _standing(self, replica: Replica) -> Standing:
        standing, known = Standing(replica, self._kind(replica)), self._by_id.get(replica.replica_id)
        if known is not None and known.replica.load == replica.load:
            standing.still(known)
        else:
            given = self._given.get(replica.replica_id, NEVER)
            standing.reported(self._accounts.get(replica.replica_id, IDLE), given)
        return standing

    def _kind(self, replica: Replica) -> Kind:
        profile, replica_id, role = self._rates.profile, replica.replica_id, replica.role
        prefill = self._rates.factor(replica_id, role, Metric.PREFILL)
        load = self._rates.factor(replica_id, role, Metric.LOAD)
        step = self._rates.factor(replica_id, role, Metric.STEP)
        kind = Kind(
            block_size=replica.block_size_tokens,
            chunk_tokens=profile.chunk_tokens,
            max_running=profile.max_running,
            token_s=profile.prefill_token_s * prefill,
            attention_s=profile.prefill_attention_s * prefill,
            chunk_s=profile.prefill_step_s * prefill,
            step_s=profile.decode_step_s * step,
            step_request_s=profile.decode_request_s * step,
            step_context_s=profile.decode_context_token_s * step,
            host_latency_s=profile.host_latency_s * load,
            host_token_s=profile.kv_bytes_per_token / profile.host_bytes_per_s * load,
        )
        return self._kinds.setdefault(kind, kind)

    def _learn_share(self) -> None:
        others = sum(standing.reported_requests for standing in self.decodes)
        own = sum(account.requests for account in self._accounts.values())
        if others or own:
            share = min(others / own, _MOST_SHARE) if own else _MOST_SHARE
            self.share += _SHARE_WEIGHT * (share - self.share)
