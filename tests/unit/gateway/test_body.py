"""Pieces are counted as a JSON parser would count them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway.body import has_more_pieces

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
