"""The policy that Ray Serve asks how many workers there should be, for both pools at once.

Named in a Serve file beside `args`, since Serve takes a policy of an application from nowhere else:

    autoscaling_policy:
      policy_function: cluster.autoscaling:JointPolicy

Serve's controller makes one and asks it ten times a second. It owns a `Scaler` (`cluster.pools.scaling`), which
decides, and reads what workers report (`cluster.pools.reports`); what it must know of the configuration comes with the
deployments, in the arguments of their own policy, which changes nothing. Each change is logged and remembered.
"""

import logging
import time
from collections.abc import Mapping
from math import inf
from typing import Any

from cluster.pools.member import Member
from cluster.pools.needs import NeedsEstimate
from cluster.pools.reports import NAMES, READY, member_of
from cluster.pools.scaling import Scaler, ScalingSettings, apart, together
from cluster.pools.settings import LendingSettings, lends
from cluster.pools.split import Split
from cluster.rates import router_profile
from cluster.scaling_history import remember
from configs.schema import BatonConfig, PoolConfig, PoolsConfig, RouterConfig
from routing.fleet import Role
from routing.rates import Rates

log = logging.getLogger("ray.serve")

HOMES = {"PrefillWorker": Role.PREFILL, "DecodeWorker": Role.DECODE}
LOOK_EVERY_S = 1.0
REPORT_EVERY_S = 1.0
Contexts = Mapping[Any, Any]
"""Of Serve, an `AutoscalingContext` for each `DeploymentID`."""


def keep(context: Any) -> tuple[int, dict[str, Any]]:
    """A deployment's own policy, for a Serve file that does not name `JointPolicy`: what there is, is right."""
    return context.target_num_replicas, {}


def autoscaling_config(pool: PoolConfig, config: BatonConfig) -> dict[str, object]:
    """Serve's, for one of the deployments. `config` has all rates. Whoever hesitates is the policy, not Serve."""
    told = {
        "pools": config.pools.model_dump(mode="json"),
        "router": config.router.model_dump(mode="json"),
        "least": [config.prefill.least, config.decode.least],
        "most": [config.prefill.most, config.decode.most],
    }
    return {
        "min_replicas": pool.least,
        "initial_replicas": pool.replicas,
        "max_replicas": pool.most,
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "metrics_interval_s": REPORT_EVERY_S,  # Serve 2.60 warns that it will be a variable, and reads only this
        "look_back_period_s": 2 * REPORT_EVERY_S,
        "policy": {"policy_function": "cluster.autoscaling:keep", "policy_kwargs": told},
    }


class JointPolicy:
    """One application's. Asked again before `LOOK_EVERY_S` has passed, it leaves things as they are."""

    def __init__(self) -> None:
        self._scaler: Scaler | None = None
        self._looked_at = -inf

    def __call__(self, contexts: Contexts) -> tuple[dict[Any, int], dict[Any, dict[str, Any]]]:
        """Called by Serve. A deployment that the answer does not name stays as it is."""
        now = time.monotonic()
        pools = {HOMES[context.deployment_name]: context for context in contexts.values()}
        if now < self._looked_at + LOOK_EVERY_S or not pools or not _whole(pools):
            return {}, {}
        self._looked_at = now
        targets = self._scaler_of(pools).decide(_members(pools), _there(pools), now)
        if targets.why:
            log.info("autoscaling: %s", targets.why)
            remember(targets.why, time.time())
        wanted = {Role.PREFILL: targets.replicas.prefill, Role.DECODE: targets.replicas.decode}
        return {each: wanted[HOMES[context.deployment_name]] for each, context in contexts.items()}, {}

    def _scaler_of(self, pools: Mapping[Role, Any]) -> Scaler:
        if self._scaler is None:
            self._scaler = _scaler(_told(pools))
        return self._scaler


def _told(pools: Mapping[Role, Any]) -> Mapping[str, Any]:
    """What both deployments know of the configuration."""
    told: Mapping[str, Any] = next(iter(pools.values())).config.policy.policy_kwargs
    return told


def _whole(pools: Mapping[Role, Any]) -> bool:
    """Whether Serve asks for all the pools there are; while it deploys it may not."""
    prefill, decode = _told(pools)["most"]
    return (Role.PREFILL in pools or not prefill) and (Role.DECODE in pools or not decode)


def _scaler(told: Mapping[str, Any]) -> Scaler:
    pools, router = PoolsConfig.model_validate(told["pools"]), RouterConfig.model_validate(told["router"])
    settings = ScalingSettings(
        least=Split(*told["least"]),
        most=Split(*told["most"]),
        spares=pools.spares,
        up_after_s=pools.scale_up_after_s,
        down_after_s=pools.scale_down_after_s,
    )
    lending = LendingSettings.of(pools, router.itl_target_s)
    estimate = NeedsEstimate(lending, Rates(router_profile(router.rates)))
    return Scaler(settings, estimate, together if lends(pools, router.itl_target_s) else apart)


def _there(pools: Mapping[Role, Any]) -> Split:
    prefill, decode = (pools[role].target_num_replicas if role in pools else 0 for role in (Role.PREFILL, Role.DECODE))
    return Split(prefill, decode)


def _members(pools: Mapping[Role, Any]) -> list[Member]:
    """Those that have reported; one that has just started has not yet."""
    found = []
    for home, context in pools.items():
        series = context.raw_metrics or {}
        for replica in series.get(READY, {}):
            said = {name: series[name][replica][-1].value for name in NAMES}
            found.append(member_of(str(replica), home, said))
    return found
