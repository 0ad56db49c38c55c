"""How well the router predicts: what it expected of each request against what came."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from routing.router import Predicted

_ERRORS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10)


class PredictionMetrics:
    """The sums of predicted and actual seconds show a bias, the histogram of relative errors the spread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._error = Histogram(
            "baton_ttft_prediction_error_ratio",
            "How far the predicted time to first token was off, as a share of the actual one.",
            buckets=_ERRORS,
            registry=registry,
        )
        self._actual = Counter(
            "baton_predicted_requests_ttft_seconds",
            "From decision to first token, of requests with a prediction.",
            registry=registry,
        )
        self._parts = Counter(
            "baton_predicted_first_token_part_seconds",
            "What the router expected the time to first token to be spent on.",
            ["part"],
            registry=registry,
        )

    def observe(self, predicted: Predicted, ttft_s: float) -> None:
        """One first token, `ttft_s` after its decision."""
        self._actual.inc(ttft_s)
        if ttft_s > 0:
            self._error.observe(abs(predicted.ttft_s - ttft_s) / ttft_s)
        parts = {
            "queue": predicted.queue_s,
            "compute": predicted.compute_s,
            "load": predicted.load_s,
            "first_step": predicted.first_step_s,
        }
        for part, seconds in parts.items():
            self._parts.labels(part).inc(seconds)
