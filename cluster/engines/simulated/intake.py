"""Turns a request into a job, or says why it can never be answered."""

from array import array
from dataclasses import dataclass

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
        sampling = decode(request.sampling)
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
        job.sequences.append(sequence)
        return sequence

    def _text(self, prompt: "array[int]", sampling: Sampling) -> OutputText:
        return OutputText(self.vocabulary.stream(prompt, sampling.skip_special_tokens), sampling)

    def _check_prompt(self, request: EngineRequest) -> None:
        ids, size = request.token_ids, self.vocabulary.size
        if not ids:
            raise InvalidRequest("the prompt is empty")
        if len(ids) >= self.max_model_len:
            raise InvalidRequest(
                f"the prompt has {len(ids)} tokens; with at least one output token that is more than the model's"
                f" {self.max_model_len}"
            )
        if not 0 <= min(ids) <= max(ids) < size:
            raise InvalidRequest(f"token ids must lie between 0 and {size - 1}")
