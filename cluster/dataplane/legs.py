"""The seam between a worker's end of the data plane and whoever runs legs there.

Real: `cluster.workers.legs.Legs` over an engine. Fake: `tests` answer streams by hand.
"""

from typing import Protocol

from cluster.dataplane.frames import Delta, FailureKind, Generate


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
    """What a gateway may still say about a leg."""

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
