"""Where one request went, and what that was predicted and found to cost: for whoever asked to be told."""

from dataclasses import dataclass

from routing.router import Decision


@dataclass(slots=True)
class Placement:
    """Filled in as the request goes its way; of its latest attempt. `ttft_s` counts from the decision, in seconds."""

    decision: Decision | None = None
    ttft_s: float | None = None
    cached_tokens: int = 0

    def routed(self, decision: Decision) -> None:
        """A new attempt: what an earlier one found is void."""
        self.decision, self.ttft_s, self.cached_tokens = decision, None, 0
