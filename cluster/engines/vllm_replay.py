"""Makes vLLM emit given tokens again, a step each: everything that follows from having sampled them is then as it was.

vLLM loads the class by its name in its worker process, and builds one for a batch. What a request is to replay comes in
its sampling parameters' `extra_args`. The log-probabilities that vLLM returns are of the unforced logits.
"""

from typing import Any, NamedTuple

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

REPLAY = "baton_replay"
"""The key in `extra_args`; its value are token ids."""

NAME = f"{__name__}:Replay"
"""As vLLM's `logits_processors` names the class."""


class _Row(NamedTuple):
    """What one request replays, and the tokens it has made, a list that vLLM appends to."""

    tokens: list[int]
    made: list[int]


class Replay(LogitsProcessor):  # type: ignore[misc]  # vllm is not followed by mypy
    """Knows the rows of the batch that replay something."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        """It decides which token is the most likely."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Requests have come, gone or moved in the batch."""
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Leave each replaying row one token to choose from. Penalties, which come after, are finite."""
        for index, row in self._rows.items():
            position = len(row.made)
            if position < len(row.tokens):
                logits[index] = float("-inf")
                logits[index, row.tokens[position]] = 0.0
        return logits


def _row(sampling: SamplingParams, _: Any, made: list[int]) -> _Row | None:
    tokens = (sampling.extra_args or {}).get(REPLAY)
    return _Row(tokens, made) if tokens else None
