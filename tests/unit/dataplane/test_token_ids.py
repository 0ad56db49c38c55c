"""Token ids on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dataplane.token_ids import pack_token_ids, unpack_token_ids
from cluster.errors import ProtocolViolation


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_survive_the_wire(token_ids: list[int]) -> None:
    assert unpack_token_ids(pack_token_ids(token_ids)) == token_ids


def test_half_an_id_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="3 bytes"):
        unpack_token_ids(b"abc")
