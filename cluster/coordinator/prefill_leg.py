"""What the prefill leg asks of its engine: compute the prompt, make one token, which nobody reads.

The sampling parameters travel as vLLM's SamplingParams in MessagePack: a map that leaves defaults out. No sampling
parameter changes the KV of a prompt, so the leg's map is made anew and nothing of the client's but one field is taken
over: stop strings, penalties, grammars, logprobs, biases, seeds and whatever a later vLLM adds cannot reach the prefill
engine, and its step stays as cheap as it can be.
"""

from typing import Any

import msgspec

_DELTA = 1  # vLLM's RequestOutputKind.DELTA

_ONE_TOKEN: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "detokenize": False, "output_kind": _DELTA}

# Whether cached blocks may be used is about the prompt, not about sampling.
_TAKEN_OVER = ("skip_reading_prefix_cache",)


def prefill_sampling(sampling: bytes) -> bytes:
    """The prefill leg's parameters for a request with these. Both are SamplingParams in MessagePack."""
    given = msgspec.msgpack.decode(sampling)
    taken = {name: given[name] for name in _TAKEN_OVER if name in given}
    return msgspec.msgpack.encode(_ONE_TOKEN | taken)
