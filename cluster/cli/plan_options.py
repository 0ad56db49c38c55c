"""The words of `baton plan` and `baton size` as values: targets, prices, sizes."""

import re
from collections.abc import Mapping

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError

from cluster.planning.outcome import Slo
from cluster.planning.planner.question import Costs

_SECONDS = {"s": 1.0, "ms": 1e-3}


def slo_of(text: str) -> Slo:
    """`ttft=2s,itl=25ms`; one that is not named keeps its default."""
    default = Slo()
    given = {key: _seconds("--slo", key, value) for key, value in _pairs("--slo", text, ("ttft", "itl")).items()}
    return Slo(given.get("ttft", default.ttft_s), given.get("itl", default.itl_s))


def costs_of(text: str | None) -> Costs:
    """`prefill=4.1,decode=2.5`; `4` is the price of either."""
    if text is None:
        return Costs()
    if "=" not in text:
        price = _positive("--cost", "", text)
        return Costs(price, price)
    pairs = _pairs("--cost", text, ("prefill", "decode"))
    if len(pairs) != 2:
        raise typer.BadParameter(f"--cost: given {text!r}; allowed: prefill=PRICE,decode=PRICE or one price for both")
    return Costs(*(_positive("--cost", key, pairs[key]) for key in ("prefill", "decode")))


def bytes_of(option: str, text: str) -> int:
    """`256GiB`."""
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise typer.BadParameter(f"{option}: given {text!r}; allowed: a number of bytes, e.g. 256GiB") from None


def _pairs(option: str, text: str, allowed: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key not in allowed or not equals:
            known = ", ".join(f"{name}=…" for name in allowed)
            raise typer.BadParameter(f"{option}: given {part.strip()!r}; allowed: {known}")
        found[key] = value
    return found


def _seconds(option: str, key: str, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text.strip())
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"{option}: {key}: given {text!r}; allowed: a time with its unit, e.g. 2s or 25ms")
    return float(found[1]) * _SECONDS[found[2]]


def _positive(option: str, key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise typer.BadParameter(f"{option}: {key}{': ' if key else ''}given {text!r}; allowed: a price above 0")
    return number
