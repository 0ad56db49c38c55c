"""How long a step takes: the cost model, pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of a step: a fixed part, a part per decoding request, a part per prompt token; divided by `speed`."""

    step_s: float
    request_s: float
    prefill_token_s: float
    speed: float

    def duration_s(self, prompt_tokens: int, decoding: int) -> float:
        """Of a step that computes `prompt_tokens` tokens of prompts and one token of each of `decoding` requests."""
        work_s = self.step_s + self.request_s * decoding + self.prefill_token_s * prompt_tokens
        return work_s / self.speed
