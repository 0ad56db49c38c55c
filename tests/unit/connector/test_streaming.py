"""Rows arrive whole, and nothing beside them is touched."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.connector.streaming import LINE_BYTES, Rows, copy_rows, require_lines
from tests.unit.connector.devices import aligned

small = st.integers(1, 4)


def embedded(shape: tuple[int, int, int]) -> tuple[Rows, Rows]:
    """Random memory, and every second row of every second layer of it, without its first and last line."""
    layers, rows, row_bytes = shape
    memory = aligned((2 * layers, 2 * rows, row_bytes + 2 * LINE_BYTES), torch.uint8)
    memory[:] = np.random.default_rng(sum(shape)).integers(0, 256, memory.shape, np.uint8)
    return memory, memory[::2, ::2, LINE_BYTES:-LINE_BYTES]


@given(small, small, small)
def test_rows_are_copied_twice_and_nothing_else_changes(layers: int, rows: int, lines: int) -> None:
    shape = (layers, rows, lines * LINE_BYTES)
    _, source = embedded(shape)
    memory, target = embedded((layers, rows, lines * LINE_BYTES))
    memory ^= 0xFF
    expected = memory.copy()
    expected[::2, ::2, LINE_BYTES:-LINE_BYTES] = source
    kept = aligned(shape, torch.uint8)
    copy_rows(target, source, kept)
    assert (memory == expected).all()
    assert (kept == source).all()


@pytest.mark.parametrize(
    "rows",
    [
        aligned((2, 2, 128), torch.uint8)[:, :, 32:96],
        aligned((2, 2, 96), torch.uint8),
        aligned((2, 2, 96), torch.uint8)[:, :, :64],
    ],
    ids=["address", "row", "stride"],
)
def test_what_is_not_made_of_lines_is_refused(rows: Rows) -> None:
    with pytest.raises(ValueError, match=r"the device of shape .* does not lie on cache lines"):
        require_lines(rows, "the device")
