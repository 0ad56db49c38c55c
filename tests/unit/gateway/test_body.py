"""Pieces are counted as a JSON parser would count them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway.body import has_more_pieces, is_text

VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('{}[]:\\" a')),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text('{[:\\" a'), inner)),
)


def pieces(value: object) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(pieces, value.values()))
    return 1 + sum(map(pieces, value)) if isinstance(value, list) else 0


@given(VALUES)
def test_exactly_the_objects_lists_and_members_outside_of_strings_count(value: object) -> None:
    body = json.dumps(value).encode()
    count = pieces(value)
    assert not has_more_pieces(body, count)
    assert count == 0 or has_more_pieces(body, count - 1)


@pytest.mark.parametrize(
    ("body", "is_sound"),
    [
        (b'{"a": "\\ud83d\\ude00 \\uD83D\\uDE00"}', True),
        ('{"a": "😀é"}'.encode(), True),
        (b'{"a": "\\\\ud800"}', True),
        (b'{"a": "\\ud800"}', False),
        (b'{"a": "\\uDFFF"}', False),
        (b'{"a": "\\ude00\\ud83d"}', False),
        (b'{"a": "\\ud83d\\ude00\\ude00"}', False),
        (b'{"a": "\\\\\\ud800"}', False),
        (b'{"a": "\xed\xa0\x80"}', False),
        (b'{"a": "\xff"}', False),
        ('{"a": 1}'.encode("utf-16"), False),
    ],
)
def test_half_a_character_is_no_text_and_a_whole_one_is(body: bytes, is_sound: bool) -> None:
    assert is_text(body) == is_sound
