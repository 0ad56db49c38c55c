"""What is to be done before the first request: compile what a decision runs."""

from routing.block_keys import PromptKeys
from routing.fleet import Fleet, Replica, Role
from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.kv_aware import KvAware, KvAwareSettings
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.profile import Profile
from routing.rates import Rates
from routing.router import RouteRequest

_PROFILE = Profile(*[1] * 13)


def warm_up() -> None:
    """Place one request on a fleet of one pair: 20 s once on a machine, then a second in each process."""
    replicas = {role.value: Replica(role.value, role, "", "", 1, 16) for role in Role}
    index = BlockIndex()
    index.place(Role.DECODE.value, "")
    index.snapshot(Role.DECODE.value, Tier.DEVICE, [0])
    router = KvAware(KvAwareSettings(), index, Ledger(), Rates(_PROFILE), OutputLengths())
    keys = PromptKeys.given(1, range(8))
    router.explain(RouteRequest("", 8, 8, keys=keys), Fleet(replicas), 0.0)
