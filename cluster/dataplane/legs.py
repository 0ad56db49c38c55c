"""The seam between a worker's end of the data plane and whoever runs legs there.

Real: `cluster.workers.legs.Legs` over an engine. Fake: `tests` answer streams by hand.
"""

from dataclasses import dataclass
from typing import Protocol

from cluster.dataplane.frames import Delta, FailureKind, Generate, TakeRole


@dataclass(frozen=True, slots=True)
class LegWork:
    """What a leg still asks of its engine: see `cluster.dataplane.frames.Load`."""

    requests: int = 0
    prefill_tokens: int = 0

    def __add__(self, other: "LegWork") -> "LegWork":
        return LegWork(self.requests + other.requests, self.prefill_tokens + other.prefill_tokens)

    def __sub__(self, other: "LegWork") -> "LegWork":
        return LegWork(self.requests - other.requests, self.prefill_tokens - other.prefill_tokens)


NO_WORK = LegWork()


class LegSink(Protocol):
    """Where a leg's answer goes. What is written after the end or an abort is dropped."""

    def delta(self, delta: Delta) -> None:
        """New tokens; never blocks, the sink owns `delta`."""
        ...

    def end(self) -> None:
        """Every output has its `finish_reason`."""
        ...

    def fail(self, kind: FailureKind, message: str) -> None:
        """The leg ended without an answer."""
        ...


class RunningLeg(Protocol):
    """What a gateway may still say about a leg, and what it asks of the engine now."""

    @property
    def work(self) -> LegWork:
        """Cheap: asked of every leg each time a load is published."""
        ...

    def abort(self) -> None:
        """Not wanted any more. May be called after the end."""
        ...

    def source_lost(self) -> None:
        """Its prefill leg failed."""
        ...


class LegHandler(Protocol):
    """Whoever runs legs."""

    def start(self, generate: Generate, sink: LegSink) -> RunningLeg:
        """Run a leg in the background; its answer goes to `sink`."""
        ...

    def let_go(self, handoff_id: str) -> None:
        """Nobody will come for a hand-off."""
        ...

    def take_role(self, order: TakeRole) -> None:
        """The pool controller lends the worker."""
        ...
