"""Keeps a CPU engine alive, and right, when a prompt with a seed is computed in chunks.

vLLM draws for every chunk of a prompt and takes back what it drew before the last one: it moves the request's generator
back by an offset. CPU generators have none, and the worker would die. Here a seeded generator of a CPU worker knows the
state it had before the step's draws, and goes back to that.

vLLM loads the class by its name in its worker process; it is told of every step that draws, before it does.
"""

from weakref import WeakSet

import torch
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

NAME = f"{__name__}:CpuSeeds"
"""As vLLM's `logits_processors` names the class."""


class SteppedGenerator(torch.Generator):  # type: ignore[misc]  # torch is not followed by mypy
    """A generator that can go back to the start of a step. Its offset says nothing but that it can be set."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._before: torch.Tensor | None = None
        _LIVE.add(self)

    def begin_step(self) -> None:
        """What is drawn from here on can be taken back."""
        self._before = self.get_state()

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> None:
        """Take back the step's draws."""
        if self._before is not None:
            self.set_state(self._before)


_LIVE: WeakSet[SteppedGenerator] = WeakSet()


class CpuSeeds(LogitsProcessor):  # type: ignore[misc]  # vllm is not followed by mypy
    """Changes no logits. In a process where it is made, generators are `SteppedGenerator`s."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        torch.Generator = SteppedGenerator

    def is_argmax_invariant(self) -> bool:
        """It is asked only in steps that draw."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Nothing depends on who is in the batch."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """The draws follow."""
        for generator in _LIVE:
            generator.begin_step()
        return logits
