"""Random values of a msgspec type: of the right types, mostly, and with contents that nobody sends. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

INTS = (0, 1, 2, 3, 5, -1, 127, 4096, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
FLOATS = (0.0, 0.001, 0.05, 1.0, -1.0, 1e18, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "a", "a" * 300, "\x00", "é😀", "tcp://127.0.0.1:1", "tcp://", "fp", "..")
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, "x", b"x", [], {}, [[]], {"a": 1}, 2**64 - 1, "\x00" * 100)


_type_info = cache(inspect.type_info)


@dataclass(frozen=True, slots=True)
class Known:
    """Values that lead somewhere, by the name of the field: what exists already, or is asked for again."""

    fields: dict[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Maker:
    """`wrong` is how likely a value is of another type."""

    rng: random.Random
    known: Known
    wrong: float = 0.01

    def message(self, union: Any) -> Any:
        """A message of one of the types, as builtins, with its tag."""
        kinds = _type_info(union)
        chosen = self.rng.choice(kinds.types) if isinstance(kinds, inspect.UnionType) else kinds
        return self._of(chosen, "", 0)

    def _of(self, kind: Any, name: str, depth: int) -> Any:
        if self.rng.random() < self.wrong:
            return self.rng.choice(WRONG)
        known = [value for value in self.known.fields.get(name, ()) if _is_of(kind, value)]
        if known and self.rng.random() < 0.85:
            return self.rng.choice(known)
        return self._fresh(kind, name, depth)

    def _fresh(self, kind: Any, name: str, depth: int) -> Any:
        rng = self.rng
        match kind:
            case inspect.StructType():
                return self._struct(kind, depth)
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
                return [self._of(kind.item_type, name, depth + 1) for _ in range(self._length(kind, depth))]
            case inspect.TupleType():
                return [self._of(each, name, depth) for each in kind.item_types]
            case inspect.DictType():
                return {
                    self._key(kind.key_type): self._of(kind.value_type, name, depth + 1)
                    for _ in range(rng.choice((0, 1, 3)))
                }
            case inspect.UnionType():
                return self._of(rng.choice(kind.types), name, depth)
            case inspect.LiteralType():
                return rng.choice(kind.values)
            case inspect.IntType():
                return rng.choice(INTS) if rng.random() < 0.5 else rng.randrange(16)
            case inspect.FloatType():
                return rng.choice(FLOATS)
            case inspect.StrType():
                return rng.choice(TEXTS)
            case inspect.BytesType():
                return rng.randbytes(rng.choice((0, 1, 4, 8, 32, 33)))
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.NoneType():
                return None
        return rng.choice(WRONG)

    def _struct(self, kind: inspect.StructType, depth: int) -> Any:
        parts = {each.encode_name: self._of(each.type, each.encode_name, depth) for each in kind.fields}
        if kind.array_like:
            return list(parts.values())
        tag = {} if kind.tag is None else {kind.tag_field: kind.tag}
        return tag | parts

    def _length(self, kind: Any, depth: int) -> int:
        """Long lists are flat ones."""
        if depth:
            return self.rng.choice((0, 1, 2))
        is_flat = isinstance(kind.item_type, inspect.IntType | inspect.BytesType | inspect.StrType)
        return 3000 if is_flat and self.rng.random() < 0.02 else self.rng.choice((0, 1, 1, 2, 3, 6, 40))

    def _key(self, kind: Any) -> str:
        made = self._fresh(kind, "", 1)
        return made if isinstance(made, str) else "x"


def _is_of(kind: Any, value: Any) -> bool:
    match kind:
        case inspect.IntType():
            return isinstance(value, int)
        case inspect.FloatType():
            return isinstance(value, float)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.BytesType():
            return isinstance(value, bytes)
    return isinstance(kind, inspect.RawType | inspect.NoneType)


def encoded(message: Any) -> bytes:
    """In MessagePack."""
    return msgspec.msgpack.encode(message)
