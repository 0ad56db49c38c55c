"""What happened to one request and when, told to the observer as it happens. Decides nothing."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.coordinator.observer import Ended, EndListener, Observer, Timings
from cluster.coordinator.placement import Placement
from cluster.coordinator.timings import Marks, split
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Delta, LegReport
from routing.router import Decision

log = logging.getLogger(__name__)


class Timeline:
    """Owns a request's times and counts, from when it came. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        request: GenerationRequest,
        arrived_at: float,
        clock: Callable[[], float],
        observer: Observer,
        listeners: Sequence[EndListener] = (),
    ) -> None:
        self.attempts = 0
        self._resumes = 0
        self._request = request
        self._clock = clock
        self._observer = observer
        self._listeners = listeners
        self._placement = request.placement or Placement()
        let_in_at = clock()
        self._line_s = let_in_at - arrived_at
        self._marks = Marks(started_at=arrived_at, routed_at=let_in_at)
        self._last_at: dict[int, float] = {}
        self._generated_tokens = 0
        self._cached_tokens = 0
        self._prefill_cached_tokens = 0
        self._gaps = 0
        self._gaps_s = 0.0
        self._prefill: LegReport | None = None
        self._decode: LegReport | None = None
        observer.started(request)

    @property
    def age_s(self) -> float:
        """Seconds since it came."""
        return self._clock() - self._marks.started_at

    def routed(self, decision: Decision) -> None:
        """A new attempt: what is known of an earlier one's legs is void, but for how it made the first token."""
        self.attempts += 1
        self._prefill = self._decode = None
        self._observer.routed(decision)
        if self._marks.first_token_at is not None:
            self._resumes += 1
            return
        self._marks = Marks(self._marks.started_at, routed_at=self._clock())
        self._prefill_cached_tokens = 0
        self._placement.routed(decision)

    def prefill_done(self, report: LegReport | None, cached_tokens: int) -> None:
        """The prefill leg ended well; it did not have to compute `cached_tokens` of the prompt."""
        if self._resumes:
            return
        self._marks.prefill_ended_at = self._clock()
        self._prefill = report
        self._prefill_cached_tokens = cached_tokens

    def deltas(self, deltas: Sequence[Delta]) -> None:
        """Tokens came."""
        now = self._clock()
        if self._marks.first_token_at is None:
            self._marks.first_token_at = now
            self._first_token(now)
        for delta in deltas:
            self._delta(delta, now)

    def ended(self, outcome: str, moves: int) -> None:
        """The request is over; so many attempts ended because their replica drained."""
        ended = Ended(
            request=self._request,
            placement=self._placement,
            outcome=outcome,
            prompt_tokens=len(self._request.token_ids),
            generated_tokens=self._generated_tokens,
            cached_tokens=self._cached_tokens,
            prefill_cached_tokens=self._prefill_cached_tokens,
            itl_s=self._itl_s(),
            attempts=self.attempts,
            timings=self._timings(),
            prefill=self._prefill,
            decode=self._decode,
            resumes=self._resumes,
            moves=moves,
        )
        for listener in (self._observer, *self._listeners):
            _tell(listener, ended)

    def _first_token(self, now: float) -> None:
        self._observer.first_token(now - self._marks.started_at)
        self._placement.ttft_s = now - self._marks.routed_at
        decision = self._placement.decision
        if decision is not None and decision.predicted is not None:
            self._observer.predicted(decision.predicted, self._placement.ttft_s)

    def _timings(self) -> Timings:
        """The reports of a request that was resumed are not of the legs that made its first token."""
        reports = (None, None) if self._resumes else (self._prefill, self._decode)
        return replace(split(self._marks, self.age_s, *reports), line_s=self._line_s)

    def _itl_s(self) -> float | None:
        return self._gaps_s / self._gaps if self._gaps else None

    def _delta(self, delta: Delta, now: float) -> None:
        count = len(delta.token_ids)
        if count:
            before = self._last_at.get(delta.index)
            gap_s = None if before is None else now - before
            self._observer.tokens(count, gap_s)
            if gap_s is not None:
                self._gaps += count
                self._gaps_s += gap_s
            self._last_at[delta.index] = now
            self._generated_tokens += count
        if delta.num_cached_tokens is not None:
            self._cached_tokens = self._placement.cached_tokens = delta.num_cached_tokens
        if delta.report is not None:
            self._decode = delta.report


def _tell(listener: EndListener, ended: Ended) -> None:
    """A request that was answered does not fail for a bug in what watches it."""
    try:
        listener.ended(ended)
    except Exception:
        log.exception("%s broke at the end of request %s", type(listener).__name__, ended.request.request_id)
