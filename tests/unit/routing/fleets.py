"""Fleets, prompts and routers for tests, and a little world around one router."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from routing.block_keys import PromptKeys
from routing.fleet import Fleet, Replica, Role
from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.kv_aware import Candidate, KvAware, KvAwareSettings
from routing.ledger import Lease, Ledger
from routing.output_lengths import OutputLengths
from routing.profile import Profile
from routing.rates import Rates
from routing.router import Decision, RouteRequest

PROFILE = Profile(
    prefill_step_s=0.010,
    prefill_token_s=0.0001,
    prefill_attention_s=1e-9,
    chunk_tokens=2048,
    decode_step_s=0.010,
    decode_request_s=0.0002,
    decode_context_token_s=1e-8,
    max_running=64,
    kv_bytes_per_token=100_000,
    host_bytes_per_s=1e10,
    host_latency_s=0.002,
    remote_bytes_per_s=5e9,
    remote_latency_s=0.004,
)

TOKENS = range(100_000)


def replica(replica_id: str, **changes: object) -> Replica:
    """A replica of 16-token blocks; its role is told by the first letter of its name."""
    role = Role.PREFILL if replica_id.startswith("p") else Role.DECODE
    made = Replica(replica_id, role, "n", "f", block_size_tokens=16, max_model_len=20_000, kv_blocks=4096)
    return replace(made, **changes)  # type: ignore[arg-type]


def prompt(tokens: int, max_tokens: int = 100, **changes: object) -> RouteRequest:
    """The first `tokens` of an endless text: longer prompts continue shorter ones."""
    request = RouteRequest("r", tokens, max_tokens, keys=PromptKeys(TOKENS[:tokens]))
    return replace(request, **changes)  # type: ignore[arg-type]


@dataclass
class Desk:
    """One router with all it asks."""

    replicas: Sequence[Replica]
    settings: KvAwareSettings = field(default_factory=KvAwareSettings)
    now: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.index = BlockIndex(2**24)
        self.ledger = Ledger(self.index)
        self.rates = Rates(PROFILE)
        self.lengths = OutputLengths()
        self.router = KvAware(self.settings, self.index, self.ledger, self.rates, self.lengths)
        self.fleet = Fleet({each.replica_id: each for each in self.replicas})
        self.rng = Random(self.seed)
        self.held: Counter[tuple[str, Tier]] = Counter()
        for each in self.replicas:
            self.index.place(each.replica_id, each.store)
            for tier in Tier:
                self.index.snapshot(each.replica_id, tier, ())

    def hold(self, replica_id: str, tokens: int, tier: Tier = Tier.DEVICE) -> None:
        """The replica has the first blocks of the text."""
        size = self.fleet.replicas[replica_id].block_size_tokens
        self.held[replica_id, tier] = max(tokens, self.held[replica_id, tier])
        self.index.apply(replica_id, tier, PromptKeys(TOKENS[:tokens]).at(size), ())

    def route(self, request: RouteRequest) -> Decision:
        return self.router.route(request, self.fleet, self.now, self.rng)

    def explain(self, request: RouteRequest) -> list[Candidate]:
        return self.router.explain(request, self.fleet, self.now)

    def place(self, request: RouteRequest) -> tuple[Decision, Lease]:
        """Route and reserve."""
        decision = self.route(request)
        return decision, self.ledger.reserve(decision, request, self.now)

    def computed(self, lease: Lease) -> None:
        """The prompt is."""
        self.ledger.prefill_done(lease, self.now)

    def given_up(self, lease: Lease) -> None:
        """It ended without."""
        self.ledger.release(lease, self.now)

    def busy(self, replica_id: str, requests: int, tokens: int = 500) -> None:
        """Reserve requests there that have been computed already."""
        for _ in range(requests):
            asked = prompt(tokens, keys=PromptKeys(()))
            self.ledger.prefill_done(self.ledger.reserve(Decision(replica_id, None, ""), asked, self.now), self.now)


def candidate(found: Sequence[Candidate], decode: str, prefill: str | None = None) -> Candidate:
    """The one of these replicas."""
    (only,) = [each for each in found if (each.decode, each.prefill) == (decode, prefill)]
    return only
