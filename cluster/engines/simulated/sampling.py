"""The part of vLLM's SamplingParams the simulated engine honours, read from the same MessagePack.

vLLM's struct is encoded as a map that leaves out defaults, so unknown keys are skipped and missing ones take the
defaults below, which are vLLM's.
"""

from typing import Any

import msgspec

from cluster.errors import InvalidRequest

MAX_OUTPUTS = 16_384  # vLLM's own default for VLLM_MAX_N_SEQUENCES
MAX_LOGPROBS = 20  # vLLM's own default for `max_logprobs`
_GREEDY_BELOW = 1e-5  # vLLM's _SAMPLING_EPS


class Sampling(msgspec.Struct, frozen=True):
    """What one request asks for. `max_tokens` None: as far as the model's length allows."""

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    include_stop_str_in_output: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    extra_args: dict[str, Any] | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < _GREEDY_BELOW

    @property
    def wants_logprobs(self) -> bool:
        """Whether of the likeliest tokens or of those that are named."""
        return self.logprobs is not None or bool(self.logprob_token_ids)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings, however they were given."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Token ids that end an output."""
        return frozenset(self.stop_token_ids or ())


_decoder = msgspec.msgpack.Decoder(Sampling)


def decode(encoded: bytes) -> Sampling:
    """Read and check; raises `InvalidRequest` for what no engine could do."""
    try:
        sampling = _decoder.decode(encoded)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"sampling parameters: {error}") from error
    _check(sampling)
    return sampling


def _check(sampling: Sampling) -> None:
    if not 1 <= sampling.n <= MAX_OUTPUTS:
        raise InvalidRequest(f"n must be between 1 and {MAX_OUTPUTS}, got {sampling.n}")
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, got {sampling.max_tokens}")
    if not sampling.temperature >= 0:
        raise InvalidRequest(f"temperature must not be negative, got {sampling.temperature}")
    for name, count in (("logprobs", sampling.logprobs), ("prompt_logprobs", sampling.prompt_logprobs)):
        if count is not None and not 0 <= count <= MAX_LOGPROBS:
            raise InvalidRequest(f"{name} must be between 0 and {MAX_LOGPROBS}, got {count}")
    if sampling.stop_strings and not sampling.detokenize:
        raise InvalidRequest("stop strings need detokenize")
    if "" in sampling.stop_strings:
        raise InvalidRequest("a stop string must not be empty")
