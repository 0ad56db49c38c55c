"""Turns pydantic's account of a `BatonConfig` that does not validate into one sentence for each mistake.

Pure: values in, `(key path, sentence)` out. A sentence names what was given and what is allowed; an unknown key gets
the nearest known one. Secrets are never repeated.
"""

import difflib
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

KeyPath = tuple[str | int, ...]
GIVEN_LIMIT_CHARS = 60


@dataclass(frozen=True, slots=True)
class Mistake:
    """A sentence about the key at `path`, which is relative to the model that was validated."""

    path: KeyPath
    sentence: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where an error is: the path as its writer knows it, the model that owns the last key, and the field's type."""

    path: KeyPath
    owner: type[BaseModel] | None
    annotation: object


def explain(error: ValidationError, model: type[BaseModel]) -> list[Mistake]:
    """One mistake for each error of validating something as `model`."""
    return [_mistake(details, locate(details["loc"], model)) for details in error.errors(include_url=False)]


def dotted(path: Iterable[str | int]) -> str:
    """`("applications", 0, "args")` as `applications[0].args`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def unknown_key(name: str, known: Sequence[str]) -> str:
    """Says that a key is unknown, which one is near, and which there are."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"unknown key{hint} allowed: {', '.join(known)}"


def locate(loc: KeyPath, model: type[BaseModel]) -> Place:
    """Follow pydantic's location through the schema; the tags it puts between the keys of a union are left out."""
    path: list[str | int] = []
    owner: type[BaseModel] | None = model
    choices: dict[str, type[BaseModel]] = {}
    annotation: object = None
    for part in loc:
        if part in choices:
            owner, choices = choices[str(part)], {}
            continue
        path.append(part)
        field = owner.model_fields.get(str(part)) if owner else None
        if owner and not field:
            return Place(tuple(path), owner, None)
        annotation = field.annotation if field else annotation
        models = list(_models(annotation))
        owner = models[0] if len(models) == 1 and (isinstance(part, int) or not _is_list(annotation)) else None
        choices = {m.model_fields["kind"].default: m for m in models} if len(models) > 1 else {}
    return Place(tuple(path), owner, annotation)


def _is_list(annotation: object) -> bool:
    return typing.get_origin(annotation) in (list, tuple)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _mistake(details: ErrorDetails, place: Place) -> Mistake:
    match details["type"]:
        case "extra_forbidden":
            known = list(place.owner.model_fields) if place.owner else []
            return Mistake(place.path, unknown_key(str(place.path[-1]), known))
        case "missing":
            return Mistake(place.path, "is required")
        case "union_tag_invalid":
            context = details["ctx"]
            return Mistake((*place.path, "kind"), f"given '{context['tag']}'; allowed: {context['expected_tags']}")
        case "too_short":
            return Mistake(
                place.path, f"given {_shown(details, place)}; allowed: at least {details['ctx']['min_length']}"
            )
        case "model_type":
            return Mistake(place.path, f"given {_shown(details, place)}; allowed: a mapping of keys to values")
        case "byte_size" | "byte_size_unit":
            return Mistake(place.path, f"given {_shown(details, place)}; allowed: a number of bytes, e.g. 512MiB")
        case _:
            return Mistake(place.path, f"given {_shown(details, place)}; allowed: {_allowed(details['msg'])}")


def _shown(details: ErrorDetails, place: Place) -> str:
    if SecretStr in typing.get_args(place.annotation):
        return "something that is not shown"
    text = repr(details["input"])
    return text if len(text) <= GIVEN_LIMIT_CHARS else text[:GIVEN_LIMIT_CHARS] + "…"


def _allowed(message: str) -> str:
    """Pydantic's `Input should be a valid integer, unable to …` as `a valid integer`."""
    return message.removeprefix("Input should be ")
