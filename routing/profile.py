"""How long things take on one kind of replica before anything was observed there. Pure: rates in, seconds out.

Prefill: each chunk of `chunk_tokens` is a step with a fixed part; each token costs a constant part and one that grows
with the tokens before it, so that `n` tokens after `context` cost `token · n + attention · n · (context + n / 2)`: the
linear layers and the causal attention of a transformer. Decode: a step has a fixed part, a part per running request,
and one per token of context whose KV it reads. Loads: a latency, then bytes at a rate.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates of one kind of replica. Seconds, bytes, tokens; `host` is its node's store, `remote` another node's.

    `max_running` is how many requests an engine decodes in one batch.
    """

    prefill_step_s: float
    prefill_token_s: float
    prefill_attention_s: float
    chunk_tokens: int
    decode_step_s: float
    decode_request_s: float
    decode_context_token_s: float
    max_running: int
    kv_bytes_per_token: int
    host_bytes_per_s: float
    host_latency_s: float
    remote_bytes_per_s: float
    remote_latency_s: float

    def prefill_s(self, tokens: int, context_tokens: int = 0) -> float:
        """Computing `tokens` of a prompt after `context_tokens` of it, alone on the engine."""
        work_s = self.prefill_token_s * tokens + self.prefill_attention_s * tokens * (context_tokens + tokens / 2)
        return self.prefill_step_s * math.ceil(tokens / self.chunk_tokens) + work_s

    def step_s(self, batch: float, context_tokens: float) -> float:
        """A decode step of `batch` requests that have `context_tokens` between them."""
        return self.decode_step_s + self.decode_request_s * batch + self.decode_context_token_s * context_tokens

    def load_s(self, tokens: int) -> float:
        """Copying the KV of `tokens` from the node's store to the device."""
        if tokens <= 0:
            return 0.0
        return self.host_latency_s + tokens * self.kv_bytes_per_token / self.host_bytes_per_s
