"""What is left of a request when its leg is lost."""

from dataclasses import replace

from cluster.coordinator.progress import Progress
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Delta, Emitted

REQUEST = GenerationRequest("r", [1, 2, 3], b"", max_tokens=10, may_disaggregate=False)


def test_before_the_first_token_all_of_it_is_left() -> None:
    progress = Progress(REQUEST)
    progress.leg_lost()
    assert (progress.left(), progress.emitted(), progress.finished) == (REQUEST, (), False)


def test_a_single_outputs_tokens_are_more_prompt() -> None:
    progress = Progress(REQUEST)
    progress.take([Delta(0, [7], "a", cumulative_logprob=-1.0)])
    progress.take([Delta(0, [8, 9], "é", cumulative_logprob=-2.5)])
    assert progress.emitted() == (Emitted(0, [7, 8, 9], 2, -2.5),)
    assert progress.left() == replace(REQUEST, token_ids=[1, 2, 3, 7, 8, 9], max_tokens=7, may_disaggregate=True)


def test_several_outputs_share_the_prompt_and_finished_ones_are_over() -> None:
    progress = Progress(replace(REQUEST, outputs=3))
    progress.take([Delta(1, [7], "a"), Delta(0, [8], "b", finish_reason="stop")])
    assert progress.emitted() == (Emitted(1, [7], 1), Emitted(2, []))
    assert progress.left() == replace(REQUEST, outputs=2, may_disaggregate=True)
    progress.take([Delta(2, [9], "c", finish_reason="stop")])
    assert progress.left() == replace(REQUEST, token_ids=[1, 2, 3, 7], max_tokens=9, may_disaggregate=True)
    progress.take([Delta(1, [], "", finish_reason="length")])
    assert progress.finished


def test_only_the_first_leg_tells_what_of_the_prompt_was_cached() -> None:
    progress = Progress(REQUEST)
    progress.leg_lost()
    first, later = Delta(0, [7], num_cached_tokens=2), Delta(0, [8], num_cached_tokens=3)
    progress.take([first])
    progress.leg_lost()
    progress.take([later])
    assert (first.num_cached_tokens, later.num_cached_tokens) == (2, None)
