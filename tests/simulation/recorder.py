"""An `Observer` that remembers, and is strict about the order it is told things in."""

from cluster.coordinator.observer import Ended
from cluster.coordinator.workers import GenerationRequest
from routing.router import Decision, Predicted


class Recorder:
    """What an observer was told."""

    def __init__(self) -> None:
        self.requests = 0
        self.decisions: list[Decision] = []
        self.in_flight = {"prefill": 0, "decode": 0}
        self.ttft_s: list[float] = []
        self.gaps: list[tuple[int, float | None]] = []
        self.endings: list[Ended] = []
        self.refusals: list[str] = []
        self.arrivals: list[str] = []
        self.predictions: list[tuple[Predicted, float]] = []

    def started(self, request: GenerationRequest) -> None:
        self.requests += 1

    def routed(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def awaited(self, arrival: str) -> None:
        self.arrivals.append(arrival)

    def legs(self, role: str, change: int) -> None:
        self.in_flight[role] += change
        assert self.in_flight[role] >= 0

    def first_token(self, ttft_s: float) -> None:
        assert ttft_s >= 0
        self.ttft_s.append(ttft_s)

    def predicted(self, predicted: Predicted, ttft_s: float) -> None:
        self.predictions.append((predicted, ttft_s))

    def tokens(self, count: int, gap_s: float | None) -> None:
        assert count > 0
        assert gap_s is None or gap_s >= 0
        self.gaps.append((count, gap_s))

    def ended(self, ended: Ended) -> None:
        self.endings.append(ended)
        assert len(self.endings) <= self.requests

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)
