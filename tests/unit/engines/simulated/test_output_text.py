from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from cluster.engines.simulated.output_text import OutputText
from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.vocabulary import Vocabulary


@pytest.fixture
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


def shown(tokenizer: Tokenizer, text: str, **sampling: Any) -> tuple[list[str], str | None]:
    """What is shown after each character of `text`, and the stop string that ended it."""
    wanted = Sampling(**sampling)
    output = OutputText(Vocabulary(tokenizer).stream([], skip_special_tokens=True), wanted)
    pieces: list[str] = []
    for character in text:
        for token in tokenizer.encode(character).ids:
            stop = output.add(token, ends=False)
            pieces.append(output.take(finished=stop is not None))
            if stop is not None:
                return pieces, stop
    return [*pieces, output.take(finished=True)], None


def test_without_stop_strings_every_token_is_shown_at_once(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "abc") == (["a", "b", "c", ""], None)


def test_as_much_is_held_back_as_a_stop_string_could_begin_with(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "abcd", stop=["xyz"]) == (["", "", "a", "b", "cd"], None)


def test_a_stop_string_is_cut_off_with_what_follows(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "abxyzc", stop=["xyz", "q"]) == (["", "", "a", "b", ""], "xyz")


def test_the_stop_string_that_is_complete_first_counts(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "abcd", stop=["bcd", "bc"])[1] == "bc"


def test_an_included_stop_string_is_shown_and_nothing_is_held_back(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "abc", stop="bc", include_stop_str_in_output=True) == (["a", "b", "c"], "bc")


def test_stop_strings_are_ignored_until_the_least_number_of_tokens(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "xaxb", stop="x", min_tokens=2) == (["x", "a", ""], "x")


def test_a_character_of_several_tokens_is_shown_when_it_is_whole(tokenizer: Tokenizer) -> None:
    assert shown(tokenizer, "ü") == (["", "ü", ""], None)
