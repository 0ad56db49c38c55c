"""A valid JSON value made invalid, or odd: a few of its places are changed. Pure, and the same for the same `rng`."""

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.odd_values import ODD, PARAMETERS, deep

Place = tuple[Any, Any]
"""A container and the key or index in it."""


@dataclass(frozen=True, slots=True)
class Mutator:
    """`fields` are the names a request of each path may have."""

    fields: Mapping[str, Sequence[str]]

    def mutated(self, path: str, valid: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
        """`valid` with one to four changes."""
        value = copy.deepcopy(dict(valid))
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            value = value or {"unknown": odd(rng)}
            rng.choice(self._changes(path))(value, rng)
        return value

    def _changes(self, path: str) -> Sequence[Callable[[dict[str, Any], random.Random], None]]:
        names = self.fields.get(path, ())

        def set_field(value: dict[str, Any], rng: random.Random) -> None:
            name = rng.choice(names) if names else "unknown"
            value[name] = odd(rng) if name not in PARAMETERS or rng.random() < 0.5 else rng.choice(PARAMETERS[name])

        return (set_field, set_field, set_parameter, replace, replace, remove, add, grow, wrap)


def set_parameter(value: dict[str, Any], rng: random.Random) -> None:
    """A parameter takes one of the values that are nearly right."""
    name = rng.choice(list(PARAMETERS))
    value[name] = copy.deepcopy(rng.choice(PARAMETERS[name]))


def replace(value: dict[str, Any], rng: random.Random) -> None:
    """Something somewhere becomes something else."""
    container, key = rng.choice(list(_places(value)))
    container[key] = odd(rng)


def remove(value: dict[str, Any], rng: random.Random) -> None:
    """Something somewhere goes."""
    container, key = rng.choice(list(_places(value)))
    del container[key]


def add(value: dict[str, Any], rng: random.Random) -> None:
    """An object gets a member it does not know."""
    objects = [value, *(c[k] for c, k in _places(value) if isinstance(c[k], dict))]
    rng.choice(objects)[rng.choice(("unknown", "", "__class__", "type", "\ud800", "a" * 1000, "0"))] = odd(rng)


def grow(value: dict[str, Any], rng: random.Random) -> None:
    """A list becomes long."""
    lists = [c[k] for c, k in _places(value) if isinstance(c[k], list) and c[k]]
    if lists:
        chosen = rng.choice(lists)
        chosen.extend(copy.deepcopy(rng.choice(chosen)) for _ in range(rng.choice((1, 5, 30))))


def wrap(value: dict[str, Any], rng: random.Random) -> None:
    """Something is one level deeper than it should be, or many."""
    container, key = rng.choice(list(_places(value)))
    inner = container[key]
    container[key] = rng.choice(([inner], {"a": inner}, [[inner]], str(inner), deep(rng.choice((10, 90, 200)))))


def odd(rng: random.Random) -> Any:
    """Any odd value."""
    return copy.deepcopy(rng.choice(ODD))


def _places(value: Any) -> Iterator[Place]:
    """All places in a value; there is at least one in what is not empty."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
