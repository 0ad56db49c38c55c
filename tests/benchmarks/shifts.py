"""Traffic that changes its kind all at once: long prompts with short answers, then the reverse, and back."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.planning.trace import Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that come at random, `per_s` of them on average; lengths vary by half around their means."""

    name: str
    prompt_tokens: int
    output_tokens: int
    per_s: float


def shifting(phases: Sequence[Kind], phase_s: float, block_tokens: int, seed: int = 3) -> Trace:
    """Each kind for `phase_s` seconds, one after the other. No prompt has anything in common with another."""
    rng = random.Random(seed)
    requests: list[TraceRequest] = []
    first_key = 1
    for number, kind in enumerate(phases):
        arrival_s = number * phase_s + rng.expovariate(kind.per_s)
        while arrival_s < (number + 1) * phase_s:
            prompt_tokens, output_tokens = (
                int(mean * rng.uniform(0.5, 1.5)) for mean in (kind.prompt_tokens, kind.output_tokens)
            )
            blocks = prompt_tokens // block_tokens
            keys = range(first_key, first_key + blocks)
            requests.append(TraceRequest(arrival_s, prompt_tokens, output_tokens, keys))
            first_key += blocks
            arrival_s += rng.expovariate(kind.per_s)
    return Trace(requests, block_tokens)
