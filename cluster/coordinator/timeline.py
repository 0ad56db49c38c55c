"""What happened to one request and when, told to the observer as it happens. Decides nothing."""

from collections.abc import Callable, Sequence

from cluster.coordinator.observer import Ended, Observer, Timings
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Delta, LegReport
from routing.router import Decision


class Timeline:
    """Owns a request's times and counts. `clock` is monotonic, in seconds."""

    def __init__(self, request: GenerationRequest, clock: Callable[[], float], observer: Observer) -> None:
        self._prompt_tokens = len(request.token_ids)
        self._clock = clock
        self._observer = observer
        self.started_at = clock()
        self.attempts = 0
        self.generated_tokens = 0
        self._cached_tokens = 0
        self._routed_at = self.started_at
        self._prefill_ended_at: float | None = None
        self._first_token_at: float | None = None
        self._last_at: dict[int, float] = {}
        self._prefill: LegReport | None = None
        self._decode: LegReport | None = None
        observer.started(request)

    def routed(self, decision: Decision) -> None:
        """A new attempt: what is known of an earlier one's legs is void."""
        self.attempts += 1
        self._routed_at = self._clock()
        self._prefill_ended_at = self._prefill = self._decode = None
        self._observer.routed(decision)

    def prefill_done(self, report: LegReport | None) -> None:
        """The prefill leg ended well."""
        self._prefill_ended_at = self._clock()
        self._prefill = report

    def deltas(self, deltas: Sequence[Delta]) -> None:
        """Tokens came."""
        now = self._clock()
        if self._first_token_at is None:
            self._first_token_at = now
            self._observer.first_token(now - self.started_at)
        for delta in deltas:
            self._delta(delta, now)

    def ended(self, outcome: str) -> None:
        """The request is over."""
        self._observer.ended(
            Ended(
                outcome=outcome,
                prompt_tokens=self._prompt_tokens,
                generated_tokens=self.generated_tokens,
                cached_tokens=self._cached_tokens,
                attempts=self.attempts,
                timings=self._timings(),
                prefill=self._prefill,
                decode=self._decode,
            )
        )

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self.started_at

    def _delta(self, delta: Delta, now: float) -> None:
        count = len(delta.token_ids)
        if count:
            before = self._last_at.get(delta.index)
            self._observer.tokens(count, None if before is None else now - before)
            self._last_at[delta.index] = now
            self.generated_tokens += count
        if delta.num_cached_tokens is not None:
            self._cached_tokens = delta.num_cached_tokens
        if delta.report is not None:
            self._decode = delta.report

    def _timings(self) -> Timings:
        total_s = self.age_s
        if self._first_token_at is None:
            return Timings(total_s)
        ttft_s = self._first_token_at - self.started_at
        decode = self._decode
        if self._prefill_ended_at is None:
            if decode is None or decode.handoff_outcome:
                return Timings(total_s, ttft_s)
            return Timings(total_s, ttft_s, decode.queued_s, decode.first_token_s)
        leg_s = self._prefill_ended_at - self._routed_at
        queue_s = min(self._prefill.queued_s, leg_s) if self._prefill is not None else None
        timings = Timings(total_s, ttft_s, queue_s, leg_s - (queue_s or 0.0))
        if decode is None:
            return timings
        return Timings(
            total_s,
            ttft_s,
            timings.queue_s,
            timings.prefill_s,
            transfer_s=max(0.0, decode.held_s - leg_s),
            decode_wait_s=max(0.0, self._first_token_at - self._routed_at - decode.held_s),
        )
