"""The seam between the coordinator and the choice of replicas. Pure: time and randomness are arguments."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from routing.block_keys import NO_KEYS, PromptKeys
from routing.fleet import Fleet

_LEAST_PATIENCE_S = 0.1


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What is to be placed.

    `keys` are the prompt's block keys; `max_tokens` is the most it may produce; `exclude` names replicas that already
    failed it. Whoever asks with `may_wait` sees to it that a decision with `coming` is kept: see there.
    """

    request_id: str
    prompt_tokens: int
    max_tokens: int
    outputs: int = 1
    may_disaggregate: bool = True
    may_wait: bool = False
    exclude: frozenset[str] = frozenset()
    keys: PromptKeys = NO_KEYS


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a placement is expected to cost this request.

    The first four parts, in seconds, add up to the time to first token: waiting behind others where the prompt is
    computed and then where it decodes, for a place in the batch as well; computing the tokens cached nowhere it could
    use; fetching blocks (from host memory, or from prefill after its last chunk); and the decode replica's first step
    after a hand-off. `itl_s` is the time of a decode step with this request in the batch. Tokens: `computed_tokens` of
    the prompt are computed, `cached_tokens` are not. `room_s` is how much later than the prompt there is room to decode
    it with all constraints kept, and `crowd` what decodes there, with it, for each that there is room for.
    """

    queue_s: float
    compute_s: float
    load_s: float
    first_step_s: float
    itl_s: float
    computed_tokens: int
    cached_tokens: int
    room_s: float = 0.0
    crowd: float = 0.0

    @property
    def ttft_s(self) -> float:
        """Predicted time to first token."""
        return self.queue_s + self.compute_s + self.load_s + self.first_step_s


@dataclass(frozen=True, slots=True)
class Work:
    """What a placement adds to its replicas: what the ledger reserves.

    Where the prompt is computed: `prefill_tokens` cached nowhere it could use, and the engine's `prefill_s` for them.
    Where it decodes, over all outputs: the expected `decode_tokens`, the `context_tokens` whose KV its decode steps
    read on average, and the device `blocks` it will newly hold. `prefill_keys` and `decode_keys` are the keys of the
    prompt's whole blocks at the block size of the replica that computes it, and of the one that decodes it.
    """

    prefill_tokens: int
    prefill_s: float
    decode_tokens: int
    context_tokens: int
    blocks: int
    prefill_keys: Sequence[int] = field(default=(), repr=False)
    decode_keys: Sequence[int] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Blocks of another node's store: those of the prompt's tokens from `start_tokens` up to `end_tokens`, which is in
    whole blocks. Computing them would take `worth_s`.
    """

    node_id: str
    start_tokens: int
    end_tokens: int
    worth_s: float


@dataclass(frozen=True, slots=True)
class Coming:
    """First blocks of a prompt that another replica computes at this moment: in about `there_s` they are in `store`,
    its node's, whence they can be loaded.
    """

    replica_id: str
    store: str
    there_s: float
    keys: Sequence[int] = field(repr=False)

    @property
    def patience_s(self) -> float:
        """How long they are waited for: no prediction is off by more than that."""
        return 2 * self.there_s + _LEAST_PATIENCE_S


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes. Without `prefill` the decode replica computes the prompt itself; `why` is for people.

    With `coming` it goes nowhere yet: it is asked for again when these blocks are there, or will not come. Until then
    its work is reserved where it is to go.

    Where the prompt is computed, `fetch` comes first, and no more than the first `load_limit_tokens` of it are taken
    from the node's store: None, whatever is there. A router that predicts nothing leaves `predicted` and `work` None.
    """

    decode: str
    prefill: str | None
    why: str
    predicted: Predicted | None = None
    work: Work | None = None
    fetch: Fetch | None = None
    load_limit_tokens: int | None = None
    coming: Coming | None = None

    def without_prefill(self, why: str) -> "Decision":
        """The decode replica computes the prompt after all.

        Nothing that was predicted of the pair holds of it; the work is as much at least, and all of it there.
        """
        work = replace(self.work, prefill_keys=self.work.decode_keys) if self.work is not None else None
        return Decision(self.decode, None, f"{self.why}, but {why}", work=work)


class Rng(Protocol):
    """A source of randomness, e.g. `random.Random`."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


class Router(Protocol):
    """Chooses; changes nothing."""

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """The best placement at time `now` (seconds, monotonic).

        Raises `routing.errors.NoCandidate` when no decode replica can take the request.
        """
        ...

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        """What awaits the request now; None when nobody knows, or nobody can take it.

        Without keys it says what is before any request: asked of those that wait, it costs no look-up.
        """
        ...
