"""Places each request where the least work is predicted to be in front of it.

Work is counted in prompt tokens; an output token weighs `decode_weight`. A prefill replica's work is its queued
prompt tokens; a decode replica's is its queued prompt tokens and the output tokens still to come.

Two sources tell how busy a replica is: its own report (of all gateways, up to a second old) and the ledger (of this
gateway, exact). Their overlap is not known, so nothing is added that may be counted twice: prompt tokens are the larger
of both; requests beyond this gateway's own are the others', and each of those is taken to be as long as the one
being placed.

Prefill replicas never decode. A pair exchanges blocks, so both have the same KV fingerprint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from routing.errors import NoCandidate
from routing.fit import fits, why_none
from routing.fleet import Fleet, Replica, Role
from routing.ledger import Ledger
from routing.router import Decision, Predicted, Rng, RouteRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeastWorkSettings:
    """`decode_weight` is the work of one expected output token, in prompt tokens."""

    decode_weight: float = 0.1


@dataclass(frozen=True, slots=True)
class _Choice:
    replica: Replica
    work: float


class LeastWork:
    """The first `Router`: knows load, knows nothing of caches."""

    def __init__(self, settings: LeastWorkSettings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger

    def outlook(self, request: RouteRequest, fleet: Fleet, now: float) -> Predicted | None:
        """It predicts nothing."""
        return None

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        """The pair, or the lone decode replica, with the least work. See `Router`; `now` is of no use here."""
        decodes = self._decode_choices(request, fleet)
        if not decodes:
            raise NoCandidate(why_none(request, fleet))
        prefills = self._prefill_choices(request, fleet)
        pairs = [(p, d) for p, d in _best_pairs(prefills, decodes, rng) if _has_full_block(request, d.replica)]
        if pairs:
            prefill, decode = _least(pairs, [p.work + d.work for p, d in pairs], rng)
            return Decision(decode.replica.replica_id, prefill.replica.replica_id, _why_pair(prefill, decode))
        decode = _least(decodes, [d.work for d in decodes], rng)
        return Decision(decode.replica.replica_id, None, _why_local(request, decode, prefills))

    def _decode_choices(self, request: RouteRequest, fleet: Fleet) -> list[_Choice]:
        needed = request.prompt_tokens + request.max_tokens
        fit = [r for r in fleet.ready(Role.DECODE) if fits(r, request, needed)]
        return [_Choice(r, self._decode_work(r, request)) for r in fit]

    def _prefill_choices(self, request: RouteRequest, fleet: Fleet) -> list[_Choice]:
        if not request.may_disaggregate:
            return []
        fit = [r for r in fleet.ready(Role.PREFILL) if fits(r, request, request.prompt_tokens + 1)]
        return [_Choice(r, self._prefill_work(r) + request.prompt_tokens) for r in fit]

    def _prefill_work(self, replica: Replica) -> float:
        return max(replica.load.queued_prefill_tokens, self._ledger.load(replica.replica_id).prefill_tokens)

    def _decode_work(self, replica: Replica, request: RouteRequest) -> float:
        load, own = replica.load, self._ledger.load(replica.replica_id)
        others = max(0, load.running + load.waiting + load.held - own.requests)
        tokens = own.decode_tokens + others * request.max_tokens + request.outputs * request.max_tokens
        return self._prefill_work(replica) + self._settings.decode_weight * tokens


def _has_full_block(request: RouteRequest, decode: Replica) -> bool:
    """Whether anything can be handed over: the last prompt token is always computed by decode."""
    return (request.prompt_tokens - 1) // decode.block_size_tokens > 0


def _best_pairs(prefills: list[_Choice], decodes: list[_Choice], rng: Rng) -> list[tuple[_Choice, _Choice]]:
    """For each fingerprint that both roles have, its least loaded replica of each role."""
    by_print_p, by_print_d = _by_fingerprint(prefills), _by_fingerprint(decodes)
    return [
        (_least(ps, [p.work for p in ps], rng), _least(ds, [d.work for d in ds], rng))
        for fingerprint, ps in by_print_p.items()
        if (ds := by_print_d.get(fingerprint))
    ]


def _by_fingerprint(choices: list[_Choice]) -> Mapping[str, list[_Choice]]:
    groups: dict[str, list[_Choice]] = {}
    for choice in choices:
        groups.setdefault(choice.replica.kv_fingerprint, []).append(choice)
    return groups


def _least(items: Sequence[T], works: Sequence[float], rng: Rng) -> T:
    """The item with the least work, equal ones with equal chances."""
    least = min(works)
    ties = [item for item, work in zip(items, works, strict=True) if work == least]
    return ties[int(rng.random() * len(ties))] if len(ties) > 1 else ties[0]


def _why_pair(prefill: _Choice, decode: _Choice) -> str:
    return (
        f"prefill on {prefill.replica.replica_id} ({prefill.work:.0f} tokens of work with this request) and decode on "
        f"{decode.replica.replica_id} ({decode.work:.0f}) are the least loaded pair"
    )


def _why_local(request: RouteRequest, decode: _Choice, prefills: list[_Choice]) -> str:
    if not request.may_disaggregate:
        reason = "the request may not be split"
    elif not prefills:
        reason = "no prefill replica is fit"
    elif not _has_full_block(request, decode.replica):
        reason = f"{request.prompt_tokens} prompt tokens leave no full block to hand over"
    else:
        reason = "no prefill replica shares a KV fingerprint with a decode replica"
    return f"{decode.replica.replica_id} computes the prompt itself ({decode.work:.0f} tokens of work): {reason}"
