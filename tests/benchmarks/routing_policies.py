"""The policies of the routing benchmark, as `Router`s: ours as deployed, and the plain ones it is held against."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.planning import minds
from cluster.planning.gateway import Mind
from cluster.pools.settings import LendingSettings
from routing.errors import NoCandidate
from routing.fleet import Fleet, Replica, Role
from routing.ledger import Ledger
from routing.profile import Profile
from routing.router import Decision, Rng, RouteRequest

TTFT_TARGET_S, ITL_TARGET_S = 2.0, 0.025
LENDING = LendingSettings(ttft_target_s=TTFT_TARGET_S, itl_target_s=ITL_TARGET_S)


class RoundRobin:
    """Each decode replica in turn, whatever it has to do."""

    def __init__(self) -> None:
        self._placed = 0

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """See `Router`."""
        replicas = _decodes(fleet)
        chosen = replicas[self._placed % len(replicas)]
        self._placed += 1
        return Decision(chosen.replica_id, None, "its turn")


@dataclass(frozen=True, slots=True)
class StickySettings:
    """The defaults of SGLang's and vllm-router's cache-aware policies.

    A prefix is followed when at least `threshold` of the prompt was sent there before, and load is balanced: open
    requests differ by at most `balance_abs`, or by less than `balance_rel` times. Else the least loaded gets it.
    `most_blocks` are remembered for each replica.
    """

    threshold: float = 0.3
    balance_abs: int = 64
    balance_rel: float = 1.5
    most_blocks: int = 16_384


class StickyPrefix:
    """What cache-aware proxies do: a memory of the prompts sent to each replica, followed while load is balanced.

    It knows neither what an engine has evicted nor how long anything takes.
    """

    def __init__(self, settings: StickySettings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._sent: dict[str, OrderedDict[int, None]] = {}

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """See `Router`."""
        replicas = _decodes(fleet)
        keys = request.keys.at(replicas[0].block_size_tokens)
        chosen = self._follow(keys, replicas) or min(replicas, key=self._open)
        self._remember(chosen.replica_id, keys)
        return Decision(chosen.replica_id, None, "prefix or load")

    def _follow(self, keys: Sequence[int], replicas: list[Replica]) -> Replica | None:
        if not keys or not self._is_balanced(replicas):
            return None
        best = max(replicas, key=lambda replica: self._known(replica.replica_id, keys))
        return best if self._known(best.replica_id, keys) > self._settings.threshold * len(keys) else None

    def _is_balanced(self, replicas: list[Replica]) -> bool:
        loads = [self._open(replica) for replica in replicas]
        most, least = max(loads), min(loads)
        return most - least <= self._settings.balance_abs or most <= self._settings.balance_rel * least

    def _open(self, replica: Replica) -> int:
        return self._ledger.load(replica.replica_id).requests

    def _known(self, replica_id: str, keys: Sequence[int]) -> int:
        sent = self._sent.get(replica_id, OrderedDict())
        return next((i for i, key in enumerate(keys) if key not in sent), len(keys))

    def _remember(self, replica_id: str, keys: Sequence[int]) -> None:
        sent = self._sent.setdefault(replica_id, OrderedDict())
        for key in reversed(keys):
            sent[key] = None
            sent.move_to_end(key)
        for _ in range(len(sent) - self._settings.most_blocks):
            sent.popitem(last=False)


def _decodes(fleet: Fleet) -> list[Replica]:
    replicas = fleet.ready(Role.DECODE)
    if not replicas:
        raise NoCandidate("no decode replica is ready")
    return replicas


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by name, how a gateway's mind is made for it, whether it can use prefill workers, and by which settings
    they are lent to decode and back, if they are.
    """

    name: str
    about: str
    mind: Callable[[Profile], Mind]
    may_split: bool = False
    lends: LendingSettings | None = None


def _round_robin(profile: Profile) -> Mind:
    return Mind(RoundRobin(), Ledger())


def _least_loaded(profile: Profile) -> Mind:
    return minds.least_work()


def _sticky(profile: Profile) -> Mind:
    ledger = Ledger()
    return Mind(StickyPrefix(StickySettings(), ledger), ledger)


def _ours(profile: Profile) -> Mind:
    return minds.kv_aware(profile, ITL_TARGET_S)


POLICIES = (
    Policy("round robin", "each worker in turn", _round_robin),
    Policy("least loaded", "routing.least_work: knows load, not caches", _least_loaded, may_split=True),
    Policy("sticky prefix", "as cache-aware proxies: follows what it sent where, while load is balanced", _sticky),
    Policy("ours", "routing.kv_aware with index, ledger and learnt output lengths", _ours, may_split=True),
    Policy("ours, lending", "the same as shipped: roles are lent", _ours, may_split=True, lends=LENDING),
)
