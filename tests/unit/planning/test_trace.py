"""Trace files: what is read, what is refused, and the figures of the real ones where they are at hand."""

import os
from pathlib import Path

import pytest

from cluster.planning.trace import statistics
from cluster.planning.trace_files import TraceError, read_azure, read_mooncake, read_trace

TRACES = Path(os.environ.get("BATON_TRACES") or Path(__file__).parents[4] / "shared" / "traces")


def _write(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def _row(timestamp: int, tokens: int, ids: list[int]) -> str:
    return f'{{"timestamp": {timestamp}, "input_length": {tokens}, "output_length": 7, "hash_ids": {ids}}}\n'


def test_equal_ids_give_equal_keys_and_partial_blocks_none(tmp_path: Path) -> None:
    trace = read_mooncake(_write(tmp_path, _row(3000, 700, [5, 6]) + _row(0, 1024, [5, 9])), 64)
    first, second = trace.requests
    assert (first.arrival_s, second.arrival_s) == (0.0, 3.0)
    assert (len(first.keys), len(second.keys)) == (16, 10)
    assert list(first.keys[:8]) == list(second.keys[:8])
    assert len({*first.keys, *second.keys}) == 18
    assert all(0 <= key < 1 << 64 for key in first.keys)


def test_reuse_is_what_an_unlimited_cache_would_hold(tmp_path: Path) -> None:
    trace = read_mooncake(_write(tmp_path, _row(0, 1024, [1, 2]) + _row(1, 1024, [1, 3])), 512)
    told = statistics(trace)
    assert (told.requests, told.mean_prompt_tokens, told.mean_output_tokens, told.reuse) == (2, 1024, 7, 0.25)


def test_a_faster_trace_is_the_same_in_less_time(tmp_path: Path) -> None:
    trace = read_mooncake(_write(tmp_path, _row(0, 64, [1]) + _row(6000, 64, [1]))).faster(3)
    assert [request.arrival_s for request in trace.requests] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line 2: is not JSON"),
        ("[]", "line 2: is not a JSON object"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}', "line 2: hash_ids: is missing"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [0]}', "line 2: timestamp: given -1"),
        (
            '{"timestamp": 0, "input_length": "x", "output_length": 1, "hash_ids": [0]}',
            "line 2: input_length: given 'x'",
        ),
        ('{"timestamp": 0, "input_length": 1, "output_length": 0, "hash_ids": [0]}', "line 2: output_length: given 0"),
        ('{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [0]}', "allowed: 2 block ids"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}', "line 2: hash_ids: given"),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_mooncake(_write(tmp_path, _row(0, 64, [1]) + line + "\n"))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("TIMESTAMP,ContextTokens\n", "line 1: GeneratedTokens: is missing among the columns"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnever,1,1\n", "line 2: TIMESTAMP: given 'never'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1\n", "line 2: GeneratedTokens: is missing"),
    ],
)
def test_a_bad_row_is_named_with_its_field(tmp_path: Path, rows: str, said: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_azure(_write(tmp_path, rows))
    assert said in str(caught.value)


def test_the_suffix_says_what_a_file_is(tmp_path: Path) -> None:
    mooncake = tmp_path / "a.jsonl"
    mooncake.write_text(_row(0, 64, [1]))
    assert len(read_trace(mooncake)) == 1
    with pytest.raises(TraceError, match=r"allowed: \.jsonl"):
        read_trace(tmp_path / "a.txt")
    mooncake.write_text("")
    with pytest.raises(TraceError, match="holds no request"):
        read_trace(mooncake)


def test_a_window_begins_at_zero(tmp_path: Path) -> None:
    trace = read_mooncake(_write(tmp_path, "".join(_row(1000 * n, 64, [n]) for n in range(5)))).window(2, 2)
    assert [request.arrival_s for request in trace.requests] == [0.0, 1.0]


def test_block_sizes_must_divide_those_of_the_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="48"):
        read_mooncake(_write(tmp_path, ""), 48)


def test_an_azure_trace_begins_at_zero_and_shares_nothing(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.1805900,396,109\n"
    trace = read_azure(_write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows))
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens, len(r.keys)) for r in trace.requests] == [
        (0.0, 374, 44, 0),
        (pytest.approx(3.5), 396, 109, 0),
    ]
    assert statistics(trace).reuse == 0.0


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="the traces are not at hand (BATON_TRACES)")
def test_the_real_traces_have_their_published_figures() -> None:
    told = statistics(read_mooncake(TRACES / "mooncake_conversation.jsonl", 512))
    assert (told.requests, round(told.mean_prompt_tokens), round(told.mean_output_tokens)) == (12_031, 12_035, 343)
    assert told.reuse == pytest.approx(0.374, abs=0.001)
    assert len(read_azure(TRACES / "azure_2023_conv.csv")) == 19_366
