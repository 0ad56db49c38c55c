"""What goes out for a token: its text, its log-probabilities, and whether the output ends with it. No I/O, no clock."""

from dataclasses import dataclass

from cluster.dataplane.frames import Delta, LegReport, PositionLogprobs
from cluster.engines.simulated import logprobs
from cluster.engines.simulated.sequence import Job, Phase, Sequence
from cluster.engines.simulated.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an output ends, in vLLM's words."""

    finish_reason: str
    stop_reason: int | str | None = None


def emit(sequence: Sequence, vocabulary: Vocabulary, token_id: int, number: int, now_s: float) -> Delta:
    """The delta of a sequence's newest token, which was picked by `number` and is already in `tokens`."""
    ends_output = token_id in sequence.job.sampling.stop_tokens
    stop_string = sequence.text.add(token_id, ends_output) if sequence.text else None
    ending = _ending(sequence, token_id if ends_output else None, stop_string)
    delta = Delta(index=sequence.output, token_ids=[token_id], num_cached_tokens=sequence.cached_tokens)
    if sequence.text:
        delta.text = sequence.text.take(finished=ending is not None)
    if sequence.job.sampling.wants_logprobs:
        _add_logprobs(delta, sequence, vocabulary, number)
    if sequence.first_token_s is None:
        sequence.first_token_s = now_s
        delta.prompt_logprobs = _prompt_logprobs(sequence, vocabulary)
    if ending is not None:
        delta.finish_reason, delta.stop_reason = ending.finish_reason, ending.stop_reason
        delta.report = _report(sequence.job) if _is_last(sequence) else None
    return delta


def _ending(sequence: Sequence, stop_token: int | None, stop_string: str | None) -> Ending | None:
    if stop_token is not None:
        return Ending("stop", stop_token)
    if stop_string is not None:
        return Ending("stop", stop_string)
    if len(sequence.tokens) >= sequence.job.length_limit:
        return Ending("length")
    return None


def _add_logprobs(delta: Delta, sequence: Sequence, vocabulary: Vocabulary, number: int) -> None:
    sampling, token_id = sequence.job.sampling, delta.token_ids[0]
    if sampling.logprob_token_ids:
        entry = logprobs.of_tokens(vocabulary, token_id, number, sampling.logprob_token_ids)
    else:
        entry = logprobs.position(vocabulary, token_id, number, max(1, sampling.logprobs or 0))
    sequence.cumulative_logprob += entry[0].logprob
    delta.logprobs, delta.cumulative_logprob = [entry], sequence.cumulative_logprob


def _prompt_logprobs(sequence: Sequence, vocabulary: Vocabulary) -> list[PositionLogprobs | None] | None:
    count = sequence.job.sampling.prompt_logprobs
    if count is None:
        return None
    return logprobs.of_prompt(vocabulary, sequence.job.request.token_ids, max(1, count))


def _is_last(sequence: Sequence) -> bool:
    job = sequence.job
    others = (other for other in job.sequences if other is not sequence)
    return len(job.sequences) == job.sampling.n and all(other.phase is Phase.ENDED for other in others)


def _report(job: Job) -> LegReport:
    first = job.sequences[0]
    return LegReport(
        queued_s=(first.started_s or job.submitted_s) - job.submitted_s,
        first_token_s=(first.first_token_s or job.submitted_s) - job.submitted_s,
        loaded_blocks=sum(sequence.loaded_blocks for sequence in job.sequences),
        recomputed_blocks=sum(sequence.recomputed_blocks for sequence in job.sequences),
        recompute_reason=next((each.recompute_reason for each in job.sequences if each.recompute_reason), ""),
    )
