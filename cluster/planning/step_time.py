"""How long an engine's step takes. Pure functions of what the step computes; the worker model knows no others."""

from dataclasses import dataclass
from typing import Final, Protocol

from routing.profile import Profile

_TOKEN_MS: Final = 1.518344e-2


@dataclass(frozen=True, slots=True)
class Prefill:
    """What a step computes of prompts: `tokens`, which attend to `pairs` of themselves and a token before."""

    tokens: int = 0
    pairs: float = 0.0


NO_PREFILL: Final = Prefill()


class StepTime(Protocol):
    """A timing model of one engine. All times in seconds."""

    def step_s(self, prefill: Prefill, decoding: int, context_tokens: int) -> float:
        """A step that computes `prefill` of prompts and one token for each of `decoding` requests.

        `context_tokens` is the sum of what these have in the KV cache.
        """
        ...

    def run_s(self, steps: int, decoding: int, context_tokens: int) -> float:
        """`steps` steps one after another that only decode: the context grows by `decoding` tokens at each."""
        ...


@dataclass(frozen=True, slots=True)
class DynamoPolynomial:
    """The default timing model of NVIDIA Dynamo's mocker (1.6), an 8B model on a large GPU.

    Prefill of n tokens, in ms: 4.209989e-7 n² + 1.518344e-2 n + 16.50142; a decode step at the share x of the KV cache
    in use: -25.74 x² + 54.01 x + 5.74, at least 1; a step that does both takes the sum. Read in its source
    (lib/mocker, `PerfModel::Polynomial`) and equal to the times its offline replay reports.

    The constant of the first is that of long prompts alone on an engine. Up to `rider_tokens` of prompt in a step take
    their share of the second term only, and at least a decode step between them: so few tokens read the weights once,
    as a decode step does, and wait for nothing else (an H100 does 295 operations in the time it reads a byte). It
    matters where a decode worker computes the rest of a block; Dynamo's decode workers are never charged for that. 0 is
    Dynamo's model to the letter.
    """

    capacity_tokens: int
    rider_tokens: int = 0

    def step_s(self, prefill: Prefill, decoding: int, context_tokens: int) -> float:
        """See `StepTime`."""
        if 0 < prefill.tokens <= self.rider_tokens:
            return (_TOKEN_MS * prefill.tokens + self._decode_ms(context_tokens)) / 1000
        prefill_ms = _prefill_ms(prefill.tokens) if prefill.tokens else 0.0
        return (prefill_ms + (self._decode_ms(context_tokens) if decoding else 0.0)) / 1000

    def run_s(self, steps: int, decoding: int, context_tokens: int) -> float:
        """See `StepTime`: the sum of the polynomial over an arithmetic progression, in closed form."""
        last = context_tokens + (steps - 1) * decoding
        if last > self.capacity_tokens:  # beyond the fit each step is at its ceiling
            return sum(self._decode_ms(context_tokens + i * decoding) for i in range(steps)) / 1000
        x, d = context_tokens / self.capacity_tokens, decoding / self.capacity_tokens
        first_powers = steps * x + d * steps * (steps - 1) / 2
        squares = steps * x * x + x * d * steps * (steps - 1) + d * d * (steps - 1) * steps * (2 * steps - 1) / 6
        return (-25.74 * squares + 54.01 * first_powers + 5.74 * steps) / 1000

    def _decode_ms(self, context_tokens: int) -> float:
        x = min(context_tokens / self.capacity_tokens, 1.0)
        return max(-25.74 * x * x + 54.01 * x + 5.74, 1.0)


def _prefill_ms(tokens: int) -> float:
    return 4.209989e-7 * tokens * tokens + _TOKEN_MS * tokens + 16.50142


@dataclass(frozen=True, slots=True)
class LinearStepTime:
    """The timing model of our simulated engine (`engines/simulated/cost.py`): each part costs the same everywhere."""

    step_base_s: float
    request_s: float
    prefill_token_s: float

    def step_s(self, prefill: Prefill, decoding: int, context_tokens: int) -> float:
        """See `StepTime`; the context costs nothing."""
        return self.step_base_s + self.request_s * decoding + self.prefill_token_s * prefill.tokens

    def run_s(self, steps: int, decoding: int, context_tokens: int) -> float:
        """See `StepTime`."""
        return steps * self.step_s(NO_PREFILL, decoding, context_tokens)


@dataclass(frozen=True, slots=True)
class ProfiledStepTime:
    """The rates of a profile, as the router has them: what is measured or made by roofline.

    A step that does both reads the weights once: of the two fixed parts it takes the larger.
    """

    rates: Profile

    def step_s(self, prefill: Prefill, decoding: int, context_tokens: int) -> float:
        """See `StepTime`."""
        rates = self.rates
        fixed_s = max(rates.prefill_step_s if prefill.tokens else 0.0, rates.decode_step_s if decoding else 0.0)
        prompts_s = rates.prefill_token_s * prefill.tokens + rates.prefill_attention_s * prefill.pairs
        return fixed_s + prompts_s + rates.decode_request_s * decoding + rates.decode_context_token_s * context_tokens

    def run_s(self, steps: int, decoding: int, context_tokens: int) -> float:
        """See `StepTime`: the sum of an arithmetic progression."""
        grown_tokens = decoding * steps * (steps - 1) / 2
        first_s = self.step_s(NO_PREFILL, decoding, context_tokens)
        return steps * first_s + self.rates.decode_context_token_s * grown_tokens
