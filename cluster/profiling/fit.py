"""From measured points to rates: least squares of relative errors, onto the model of `routing.profile`. Pure.

    prefill    prefill_step_s · steps + prefill_token_s · tokens + prefill_attention_s · pairs
    decode     decode_step_s + decode_request_s · requests + decode_context_token_s · context of all
    moving     latency_s + bytes / bytes_per_s, for loads from the node's store and transfers between two stores

A prompt of n tokens has n²/2 pairs of a token and one before it, and prompts asked for at once share steps of
`chunk_tokens`. No coefficient is negative: what does not show beside the others is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from configs.measured import DecodePoint, LoadPoint, MeasuredConfig, PrefillPoint, TransferPoint

LEAST_TOKEN_S: Final = 1e-9
"""A token's time is never taken to be less, nor a byte's than a thousandth of it: rates stay finite."""

Point = PrefillPoint | DecodePoint | LoadPoint | TransferPoint
Rows = list[tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What the engine was told, and does not have to be measured."""

    chunk_tokens: int
    max_running: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class FittedPoint:
    """A point as it was measured and as the rates have it."""

    about: str
    seconds: float
    fitted_s: float

    @property
    def error(self) -> float:
        """Relative to what was measured; positive where the rates say longer."""
        return self.fitted_s / self.seconds - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """Rates by their names in a profile, and every point beside them."""

    rates: dict[str, float]
    points: Sequence[FittedPoint]


def fit(measured: MeasuredConfig, shape: EngineShape) -> Fit:
    """The rates. There must be a point of each kind."""
    prefill = _solve([_prompt_features(p, shape) for p in measured.prefill], [p.seconds for p in measured.prefill])
    decode = _solve([_step_features(p) for p in measured.decode], [p.seconds for p in measured.decode])
    load, transfer = (_moving(points, shape.kv_bytes_per_token) for points in (measured.load, measured.transfer))
    rates = {
        "prefill_step_s": prefill.coefficients[0],
        "prefill_token_s": max(prefill.coefficients[1], LEAST_TOKEN_S),
        "prefill_attention_s": prefill.coefficients[2],
        "chunk_tokens": shape.chunk_tokens,
        "decode_step_s": decode.coefficients[0],
        "decode_request_s": decode.coefficients[1],
        "decode_context_token_s": decode.coefficients[2],
        "max_running": shape.max_running,
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "host_bytes_per_s": _per_s(load),
        "host_latency_s": load.coefficients[0],
        "remote_bytes_per_s": _per_s(transfer),
        "remote_latency_s": transfer.coefficients[0],
    }
    points: list[Point] = [*measured.prefill, *measured.decode, *measured.load, *measured.transfer]
    fitted = [*prefill.fitted_s, *decode.fitted_s, *load.fitted_s, *transfer.fitted_s]
    return Fit(rates, [FittedPoint(_about(p), p.seconds, s) for p, s in zip(points, fitted, strict=True)])


@dataclass(frozen=True, slots=True)
class _Solution:
    coefficients: Sequence[float]
    fitted_s: Sequence[float]


def _solve(rows: Rows, seconds: Sequence[float]) -> _Solution:
    """Non-negative least squares of relative errors. With three unknowns all sets of non-zero ones can be tried."""
    features, measured = np.array(rows), np.array(seconds)
    weighted = features / measured[:, None]
    best, least = np.zeros(3), float("inf")
    for count in range(1, 4):
        for active in combinations(range(3), count):
            found = _least_squares(weighted[:, active])
            error = float(((weighted[:, active] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(3), error
                best[list(active)] = found
    return _Solution(best.tolist(), (features @ best).tolist())


def _least_squares(weighted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns are of very different size: scaled first."""
    scale = np.abs(weighted).max(axis=0)
    scale[scale == 0] = 1.0
    found: NDArray[np.float64] = np.linalg.lstsq(weighted / scale, np.ones(len(weighted)), rcond=None)[0] / scale
    return found


def _prompt_features(point: PrefillPoint, shape: EngineShape) -> tuple[float, float, float]:
    tokens = point.prompts * point.tokens
    return ceil(tokens / shape.chunk_tokens), tokens, tokens * point.tokens / 2


def _step_features(point: DecodePoint) -> tuple[float, float, float]:
    return 1.0, point.requests, point.requests * point.context_tokens


def _moving(points: Sequence[LoadPoint] | Sequence[TransferPoint], bytes_per_token: int) -> _Solution:
    return _solve([(1.0, point.tokens * bytes_per_token, 0.0) for point in points], [p.seconds for p in points])


def _per_s(moving: _Solution) -> float:
    return 1 / max(moving.coefficients[1], LEAST_TOKEN_S / 1000)


def _about(point: Point) -> str:
    match point:
        case PrefillPoint():
            return f"prefill of {point.prompts} × {point.tokens:,} tokens"
        case DecodePoint():
            return f"decode step of {point.requests} × {point.context_tokens:,} tokens"
        case LoadPoint():
            return f"load of {point.tokens:,} tokens"
        case TransferPoint():
            return f"transfer of {point.tokens:,} tokens"
