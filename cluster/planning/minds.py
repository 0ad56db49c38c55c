"""What a simulated gateway decides with: the production parts, put together as a real gateway does it."""

from math import inf

from cluster.planning.gateway import Mind
from routing.index_blocks import BlockIndex
from routing.kv_aware import KvAware, KvAwareSettings
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.profile import Profile
from routing.rates import Rates


def kv_aware(profile: Profile, itl_target_s: float = inf) -> Mind:
    """Knows where blocks are and how long things take."""
    index = BlockIndex()
    ledger, lengths = Ledger(index), OutputLengths()
    router = KvAware(KvAwareSettings(itl_target_s), index, ledger, Rates(profile), lengths)
    return Mind(router, ledger, index, lengths)


def least_work() -> Mind:
    """Knows load only."""
    ledger = Ledger()
    return Mind(LeastWork(LeastWorkSettings(), ledger), ledger)
