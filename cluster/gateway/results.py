"""Deltas of our data plane become vLLM's `RequestOutput`, exactly as its own engine client would have emitted them.

Three kinds of output, as in vLLM: DELTA yields what is new, CUMULATIVE everything so far at each step, FINAL_ONLY one
result with all `n` outputs when the last of them has ended.
"""

from collections.abc import Sequence

from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from cluster.dataplane.frames import Delta, PositionLogprobs

LogprobsOfPosition = dict[int, Logprob]


class ResultAssembler:
    """The outputs of one request so far. `push` takes a step of the backend and returns what to emit, or None."""

    def __init__(self, request_id: str, prompt_token_ids: list[int], sampling: SamplingParams) -> None:
        self._request_id = request_id
        self._prompt_token_ids = prompt_token_ids
        self._kind = sampling.output_kind
        self._wants_logprobs = sampling.num_logprobs is not None  # of the likeliest, or of tokens that are named
        self._wants_prompt_logprobs = sampling.prompt_logprobs is not None
        self._unfinished = set(range(sampling.n))
        self._unseen = set(range(sampling.n))
        self._whole: dict[int, Delta] = {}
        self._num_cached_tokens = 0
        self._prompt_logprobs: list[LogprobsOfPosition | None] = []

    @property
    def finished(self) -> bool:
        """Whether every output has a finish reason."""
        return not self._unfinished

    def push(self, step: Sequence[Delta]) -> RequestOutput | None:
        """Account for one step. At most one delta for each output."""
        prompt_logprobs = self._note(step)
        if self._kind is RequestOutputKind.DELTA:
            return self._result([self._completion(delta) for delta in step], prompt_logprobs)
        for delta in step:
            self._gather(delta)
        if self._kind is RequestOutputKind.FINAL_ONLY:
            if self._unfinished:
                return None
            outputs = [self._completion(self._whole[index]) for index in sorted(self._whole)]
        else:
            outputs = [self._completion(self._whole[delta.index]) for delta in step]
        return self._result(outputs, self._prompt_logprobs)

    def _note(self, step: Sequence[Delta]) -> list[LogprobsOfPosition | None]:
        """Take what belongs to the request from its deltas; returns the prompt logprobs this step has to carry."""
        first = False
        for delta in step:
            if delta.num_cached_tokens is not None:
                self._num_cached_tokens = delta.num_cached_tokens
            if delta.prompt_logprobs is not None and not self._prompt_logprobs:
                self._prompt_logprobs = [_position(p) if p is not None else None for p in delta.prompt_logprobs]
            if delta.finish_reason is not None:
                self._unfinished.discard(delta.index)
            if delta.index in self._unseen:
                self._unseen.discard(delta.index)
                first = True
        return self._prompt_logprobs if first else []

    def _gather(self, delta: Delta) -> None:
        known = self._whole.get(delta.index)
        if known is None:
            self._whole[delta.index] = delta
        else:
            known.absorb(delta)

    def _completion(self, delta: Delta) -> CompletionOutput:
        logprobs = [_position(position) for position in delta.logprobs or ()] if self._wants_logprobs else None
        return CompletionOutput(
            index=delta.index,
            text=delta.text,
            token_ids=delta.token_ids,
            cumulative_logprob=delta.cumulative_logprob,
            logprobs=logprobs,
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason,
        )

    def _result(
        self, outputs: list[CompletionOutput], prompt_logprobs: list[LogprobsOfPosition | None]
    ) -> RequestOutput:
        return RequestOutput(
            request_id=self._request_id,
            prompt=None,
            prompt_token_ids=self._prompt_token_ids,
            prompt_logprobs=prompt_logprobs if self._wants_prompt_logprobs else None,
            outputs=outputs,
            finished=self.finished,
            num_cached_tokens=self._num_cached_tokens,
        )


def _position(candidates: PositionLogprobs) -> LogprobsOfPosition:
    """One position: the sampled token first, as vLLM orders them."""
    return {entry.token_id: Logprob(entry.logprob, entry.rank, entry.decoded) for entry in candidates}
