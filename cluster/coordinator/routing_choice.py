"""Builds what a deployment's requests are routed by: the router, and everything it asks."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from cluster.coordinator.learning import Learner
from cluster.coordinator.observer import EndListener
from cluster.rates import router_profile
from configs.profiles import rates_of
from configs.schema import BatonConfig
from routing.fleet import Fleet
from routing.index import KvIndex
from routing.index_blocks import BlockIndex
from routing.kv_aware import KvAware, KvAwareSettings
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.prediction_error import PredictionError
from routing.rates import Rates
from routing.router import Router
from routing.warm_up import warm_up


@dataclass(frozen=True, slots=True)
class Routing:
    """One gateway's router and what it knows. `index` is fed by the workers, `ledger` by the coordinator."""

    router: Router
    index: KvIndex
    ledger: Ledger
    rates: Rates
    lengths: OutputLengths
    error: PredictionError

    def learner(self, fleet: Callable[[], Fleet]) -> EndListener:
        """What teaches the router from requests that ended."""
        return Learner(self.rates, self.lengths, self.error, fleet)

    def gone(self, replica_id: str) -> None:
        """The replica will not come back: nothing is held there, reserved there or known of it."""
        self.index.drop(replica_id)
        self.ledger.drop(replica_id)
        self.rates.forget(replica_id)


def choose_routing(config: BatonConfig) -> Routing:
    """As the configuration's `router` section says, ready for the first request."""
    warm_up()
    index = BlockIndex(int(config.router.index_bytes))
    ledger, rates, lengths = Ledger(index), Rates(router_profile(rates_of(config))), OutputLengths()
    return Routing(_router(config, index, ledger, rates, lengths), index, ledger, rates, lengths, PredictionError())


def _router(config: BatonConfig, index: KvIndex, ledger: Ledger, rates: Rates, lengths: OutputLengths) -> Router:
    if config.router.policy == "least_work":
        return LeastWork(LeastWorkSettings(decode_weight=config.router.decode_weight), ledger)
    settings = KvAwareSettings(config.router.itl_target_s or inf, config.router.far_factor)
    return KvAware(settings, index, ledger, rates, lengths)
