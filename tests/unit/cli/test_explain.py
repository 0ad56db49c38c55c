"""`baton route explain`, without a cluster: what it asks and what it shows."""

import json
from pathlib import Path

import pytest
import typer

from cluster.cli.explain import Answer, Question, as_table, to_json
from routing.kv_aware import Candidate
from routing.router import Fetch, Predicted
from tests.unit.cli.test_command import baton

PREDICTED = Predicted(0.1, 0.2, 0.05, 0.05, 0.01, computed_tokens=100, cached_tokens=32)


def question(tokens_file: Path) -> Question:
    return Question("nowhere", None, tokens_file, 16, None)


@pytest.mark.parametrize("text", ["[1, 2, 3]", "1 2\n3\n"])
def test_token_ids_are_read_as_json_or_as_numbers(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ids"
    file.write_text(text)
    assert question(file).token_ids() == [1, 2, 3]


@pytest.mark.parametrize("text", ["[1, -2]", "[true]", "one two", "[1.5]", "[4294967296]", "{"])
def test_what_is_no_token_ids_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ids"
    file.write_text(text)
    with pytest.raises(typer.BadParameter, match="ids has no token ids"):
        question(file).token_ids()


def test_the_table_shows_each_placement_with_its_parts() -> None:
    fetch = Fetch("node 7", 16, 96, 1.0)
    answer = Answer(132, 16, [Candidate("d1", "p1", 0.5, PREDICTED), Candidate("d2", None, 0.7, PREDICTED, fetch)])
    first, second = as_table(answer).splitlines()[2:]
    assert first.split()[:7] == ["500.0", "400.0", "100.0", "200.0", "50.0", "50.0", "10.0"]
    assert first.endswith("p1 → d1")
    assert second.endswith("d2 alone, 80 tokens from node 7")


def test_json_has_all_of_it() -> None:
    answer = json.loads(to_json(Answer(132, 16, [Candidate("d1", None, 0.5, PREDICTED)])))
    assert answer["candidates"][0]["predicted"]["ttft_s"] == pytest.approx(0.4)


def test_without_a_prompt_or_with_two_the_error_names_the_options() -> None:
    for arguments in ((), ("hello", "--tokens-file", "configs/laptop.yaml")):
        done = baton("route", "explain", "configs/simulated.yaml", *arguments)
        assert done.returncode == 2
        assert "--prompt-file" in done.stderr
