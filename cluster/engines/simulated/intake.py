"""Turns a request into a job, or says why it can never be answered."""

from array import array
from dataclasses import dataclass

import msgspec

from cluster.engines.engine import EngineRequest
from cluster.engines.simulated.output_text import OutputText
from cluster.engines.simulated.sampling import Sampling, decode
from cluster.engines.simulated.sequence import Job, Sequence
from cluster.engines.simulated.tokens import origin, root_hash
from cluster.engines.simulated.vocabulary import Vocabulary
from cluster.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Intake:
    """Knows the limits. Holds no state."""

    vocabulary: Vocabulary
    max_model_len: int
    block_size: int
    lora_names: frozenset[str] = frozenset()

    def job(self, request: EngineRequest, now_s: float) -> Job:
        """Check a request; raises `InvalidRequest`. The job has no sequences yet."""
        self._check_prompt(request)
        if request.lora_name is not None and request.lora_name not in self.lora_names:
            raise InvalidRequest(f"there is no LoRA adapter {request.lora_name!r}")
        sampling = _sampling(request)
        most = self.max_model_len if sampling.max_tokens is None else len(request.token_ids) + sampling.max_tokens
        return Job(
            request=request,
            sampling=sampling,
            length_limit=min(most, self.max_model_len),
            root_hash=root_hash(request.cache_salt, request.lora_name),
            origin=origin(request.lora_name),
            submitted_s=now_s,
        )

    def sequence(self, job: Job, output: int) -> Sequence:
        """One more output of a job."""
        prompt = array("I", job.request.token_ids)
        text = self._text(prompt, job.sampling) if job.sampling.detokenize else None
        sequence = Sequence(job, output, self.block_size, prompt, text)
        if job.request.emitted is not None:
            sequence.go_on(job.request.emitted)
        job.sequences.append(sequence)
        return sequence

    def first(self, job: Job) -> Sequence:
        """The output a job begins with: its first, or the one it goes on with."""
        return self.sequence(job, output=0 if job.request.emitted is None else job.request.emitted.index)

    def _text(self, prompt: "array[int]", sampling: Sampling) -> OutputText:
        return OutputText(self.vocabulary.stream(prompt, sampling.skip_special_tokens), sampling)

    def _check_prompt(self, request: EngineRequest) -> None:
        ids, size = request.known_tokens, self.vocabulary.size
        if not ids:
            raise InvalidRequest("the prompt is empty")
        if len(ids) >= self.max_model_len:
            raise InvalidRequest(
                f"the prompt has {len(ids)} tokens; with at least one output token that is more than the model's"
                f" {self.max_model_len}"
            )
        if not 0 <= min(ids) <= max(ids) < size:
            raise InvalidRequest(f"token ids must lie between 0 and {size - 1}")


def _sampling(request: EngineRequest) -> Sampling:
    """What is asked of this engine: an output that goes on is the only one, and its prompt was told of."""
    sampling = decode(request.sampling)
    if request.emitted is None:
        return sampling
    return msgspec.structs.replace(sampling, n=1, prompt_logprobs=None)
