"""Deltas become the results vLLM's own engine client would have emitted."""

from vllm.logprobs import Logprob
from vllm.sampling_params import RequestOutputKind, SamplingParams

from cluster.dataplane.frames import Delta, TokenLogprob
from cluster.gateway.results import ResultAssembler

PROMPT = [1, 2, 3]


def assembler(kind: RequestOutputKind, **sampling) -> ResultAssembler:
    return ResultAssembler("r", PROMPT, SamplingParams(output_kind=kind, **sampling))


def token(number: int, index: int = 0, **more) -> Delta:
    return Delta(index=index, token_ids=[number], text=f"t{number}", **more)


def seen(output):
    return [(o.index, o.text, list(o.token_ids), o.finish_reason) for o in output.outputs]


def test_deltas_pass_one_by_one_with_the_prompt_on_each():
    results = assembler(RequestOutputKind.DELTA)
    first = results.push([token(1, num_cached_tokens=2)])
    last = results.push([token(2, finish_reason="stop", stop_reason=7)])
    assert (seen(first), first.finished) == ([(0, "t1", [1], None)], False)
    assert (seen(last), last.finished) == ([(0, "t2", [2], "stop")], True)
    assert last.outputs[0].stop_reason == 7
    assert [o.prompt_token_ids for o in (first, last)] == [PROMPT, PROMPT]
    assert [o.num_cached_tokens for o in (first, last)] == [2, 2]


def test_a_final_result_waits_for_every_output_and_orders_them():
    results = assembler(RequestOutputKind.FINAL_ONLY, n=2)
    assert results.push([token(1, 1), token(2, 0)]) is None
    assert results.push([token(3, 1, finish_reason="stop")]) is None
    final = results.push([token(4, 0, finish_reason="length")])
    assert seen(final) == [(0, "t2t4", [2, 4], "length"), (1, "t1t3", [1, 3], "stop")]
    assert final.finished


def test_streamed_outputs_are_finished_with_the_last_of_them():
    results = assembler(RequestOutputKind.DELTA, n=2)
    assert not results.push([token(1, 1, finish_reason="stop")]).finished
    last = results.push([token(2, 0, finish_reason="stop")])
    assert (seen(last), last.finished) == ([(0, "t2", [2], "stop")], True)


def test_cumulative_results_carry_everything_so_far():
    results = assembler(RequestOutputKind.CUMULATIVE)
    results.push([token(1)])
    assert seen(results.push([token(2, finish_reason="stop")])) == [(0, "t1t2", [1, 2], "stop")]


def test_logprobs_keep_the_order_and_rank_of_candidates():
    results = assembler(RequestOutputKind.FINAL_ONLY, logprobs=2)
    results.push([token(1, logprobs=[[TokenLogprob(1, -0.5, 2, "a"), TokenLogprob(9, -0.1, 1, "b")]])])
    final = results.push(
        [token(2, logprobs=[[TokenLogprob(2, -1.0, 1, "c")]], cumulative_logprob=-1.5, finish_reason="stop")]
    )
    output = final.outputs[0]
    assert output.logprobs == [
        {1: Logprob(-0.5, 2, "a"), 9: Logprob(-0.1, 1, "b")},
        {2: Logprob(-1.0, 1, "c")},
    ]
    assert list(output.logprobs[0]) == [1, 9]
    assert output.cumulative_logprob == -1.5


def test_without_logprobs_there_are_none_and_with_them_an_empty_delta_has_an_empty_list():
    assert assembler(RequestOutputKind.DELTA).push([token(1)]).outputs[0].logprobs is None
    assert assembler(RequestOutputKind.DELTA, logprobs=0).push([Delta(0, [])]).outputs[0].logprobs == []


def test_prompt_logprobs_come_with_the_first_delta_of_each_output():
    results = assembler(RequestOutputKind.DELTA, n=2, prompt_logprobs=1)
    expected = [None, {2: Logprob(-1.0, 1, "x")}]
    with_prompt = [None, [TokenLogprob(2, -1.0, 1, "x")]]
    assert results.push([token(1, 0, prompt_logprobs=with_prompt)]).prompt_logprobs == expected
    assert results.push([token(2, 0)]).prompt_logprobs == []
    assert results.push([token(3, 1)]).prompt_logprobs == expected


def test_prompt_logprobs_nobody_asked_for_are_none():
    assert assembler(RequestOutputKind.DELTA).push([token(1)]).prompt_logprobs is None
