"""Copies rows of bytes past the processor's caches, and keeps a second copy in them: machine code, made by numba.

A plain copy first reads what it is about to overwrite into the cache: a third of all its traffic. Here whole cache
lines are stored without that (non-temporal stores), and what was read stays in the cache a while, as `kept`, for its
digest to be taken. Addresses, strides and rows must be whole cache lines; the caller sees to that (`require_lines`),
for the processor ends a process that breaks it.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

LINE_BYTES = 64

Rows = NDArray[np.uint8]  # [layer, row, byte]


def require_lines(array: NDArray[np.uint8], name: str) -> None:
    """Raises `ValueError` unless an array's rows, the last dimension, consist of whole cache lines."""
    if any(length % LINE_BYTES for length in (array.ctypes.data, *array.strides[:-1], array.shape[-1])):
        raise ValueError(f"{name} of shape {array.shape} and strides {array.strides} does not lie on cache lines")


def _line_copier(temporal: bool) -> Any:
    """The instructions that copy one line from an address to another; if not `temporal`, past the cache."""

    def typed(_context: Any, target: Any, source: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, addresses: Any) -> Any:
            line = ir.VectorType(ir.IntType(64), LINE_BYTES // 8).as_pointer()
            to, origin = (builder.inttoptr(address, line) for address in addresses)
            store = builder.store(builder.load(origin, align=LINE_BYTES), to, align=LINE_BYTES)
            if not temporal:
                store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
            return context.get_dummy_value()

        return numba.void(target, source), generate

    return intrinsic(typed)


def _fence_typed(_context: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return numba.void(), generate


_stream_line, _keep_line, _fence = _line_copier(temporal=False), _line_copier(temporal=True), intrinsic(_fence_typed)


def _copy_rows(target: Rows, source: Rows, kept: Rows) -> None:
    layers, rows, row_bytes = source.shape
    for layer in range(layers):
        for row in range(rows):
            to = target.ctypes.data + layer * target.strides[0] + row * target.strides[1]
            origin = source.ctypes.data + layer * source.strides[0] + row * source.strides[1]
            keep = kept.ctypes.data + layer * kept.strides[0] + row * kept.strides[1]
            for offset in range(0, row_bytes, LINE_BYTES):
                _stream_line(to + offset, origin + offset)
                _keep_line(keep + offset, origin + offset)
    _fence()  # others see the target's bytes before they can hear of them


def _compiled() -> Callable[[Rows, Rows, Rows], None]:
    rows = numba.uint8[:, :, :]
    fast: Callable[[Rows, Rows, Rows], None]
    try:
        fast = numba.njit(numba.void(rows, rows, rows), nogil=True, cache=True)(_copy_rows)
    except RuntimeError:  # there is no folder to keep it in
        fast = numba.njit(numba.void(rows, rows, rows), nogil=True)(_copy_rows)
    return fast


copy_rows = _compiled()
"""Copies `source` to `target` and to `kept`, all of one shape, while other Python threads run."""
