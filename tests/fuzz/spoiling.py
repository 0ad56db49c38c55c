"""A mutated value as a request: written as JSON or nearly so, with usual or odd headers, sent whole or not. Pure."""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.fuzz.cases import Case, Manner

Header = tuple[str, str]

_JSON: Header = ("Content-Type", "application/json")
_CONTENT_TYPES = (
    "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/json;", "APPLICATION/JSON", "application/vnd.api+json", "x" * 5000, "application/json, text/plain",
    "\xff",
)  # fmt: skip
_HEADERS: tuple[Header, ...] = (
    ("X-Request-Id", ""), ("X-Request-Id", "a" * 5000), ("X-Request-Id", "\xff\xfe"), ("X-Request-Id", "same"),
    ("X-Session-ID", ""), ("X-Session-ID", "\xff"), ("traceparent", "00-zz-zz-zz"), ("traceparent", "\xff" * 100),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "=" * 3000),
    ("baggage", ",,;=;"),
    ("Accept", "text/html"), ("Accept-Encoding", "identity;q=0"), ("Authorization", "Bearer \xff"), ("Cookie",
    "=" * 4000),
    ("Content-Encoding", "gzip"), ("Content-Encoding", "br"), ("X-Vllm-Priority", "x"), ("X-data-parallel-rank", "-1"),
    ("X-data-parallel-rank", "99999999999999999999"), ("endpoint-load-metrics-format", "JSON"), ("Origin", "null"),
    ("endpoint-load-metrics-format", "\xff"), ("anthropic-version", "x"), ("X-Baton-Explain", "\xff"), ("Range",
    "bytes=0-1"),
    ("Expect", "100-continue"), ("If-None-Match", "*"), ("X-Forwarded-For", "x"), ("Forwarded", "for=;"), ("Upgrade",
    "h2c"),
    ("Access-Control-Request-Method", "x"), ("X-HTTP-Method-Override", "DELETE"), ("Content-Length", "7"), ("TE",
    "trailers"),
    ("Content-Length", "-1"), ("Content-Length", "x"), ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "gzip"),
)  # fmt: skip
_METHODS = ("GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "X")
_SUFFIXES = (
    "/",
    "//",
    "?a=b",
    "?stream=true",
    "/..",
    "%00",
    "%2e%2e",
    "?" + "a" * 3000,
    "#x",
    "/%ff",
    ";a",
    "?%ff=%fe",
)


def spoiled(path: str, value: dict[str, Any], rng: random.Random) -> Case:
    """Most requests differ in their value alone: what is wrong with the bytes hides what is wrong with the value."""
    case = Case("POST", path, (_JSON,), _written(value))
    if rng.random() < 0.3:
        case = replace(case, body=rng.choice(_SPOILED_BODIES)(case.body, rng))
    if rng.random() < 0.15:
        case = replace(case, headers=_headers(rng))
    if rng.random() < 0.05:
        case = replace(case, method=rng.choice(_METHODS))
    if rng.random() < 0.05:
        case = replace(case, target=path + rng.choice(_SUFFIXES))
    return _in_a_manner(case, rng)


def _written(value: Any) -> bytes:
    """Python's JSON: NaN and Infinity as such, half characters as escapes, integers of any length."""
    return json.dumps(value).encode()


def _headers(rng: random.Random) -> tuple[Header, ...]:
    content = _JSON if rng.random() < 0.6 else ("Content-Type", rng.choice(_CONTENT_TYPES))
    return (content, *(rng.choice(_HEADERS) for _ in range(rng.choice((0, 1, 1, 2, 5)))))


def _in_a_manner(case: Case, rng: random.Random) -> Case:
    drawn = rng.random()
    if drawn < 0.80:
        return case
    if drawn < 0.86:
        return replace(case, manner=Manner.DRIPPED)
    if drawn < 0.92:
        return replace(case, manner=Manner.LEFT)
    manner = Manner.CUT if drawn < 0.98 else Manner.STALLED
    cut = rng.randrange(len(case.body) + 1)
    return replace(case, body=case.body[:cut], manner=manner, said_length=len(case.body) + 1)


# Bodies


def _truncated(body: bytes, rng: random.Random) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def _flipped(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 3, 20))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _inserted(body: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(body) + 1)
    piece = rng.choice(
        (b"\xff\xfe", b"\x00", b"\xed\xa0\x80", b'"', b"}", b"[" * 5000, b"NaN", b"-", b"\\u", b"1" * 5000, b",")
    )
    return body[:at] + piece + body[at:]


def _number_swollen(body: bytes, rng: random.Random) -> bytes:
    swollen = rng.choice((b"9" * 5000, b"1e999", b"-1e999", b"1e-999", b"-0", b"1.0E+2", b"0x10", b"01", b"Infinity"))
    return body.replace(rng.choice((b"1", b"2", b"5", b"8")), swollen, 1)


def _encoded(body: bytes, rng: random.Random) -> bytes:
    return body.decode().encode(rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "utf-7")))


def _twice(body: bytes, rng: random.Random) -> bytes:
    """Each member twice, or the whole."""
    return body[:-1] + b"," + body[1:] if rng.random() < 0.7 else body + body


def _other(body: bytes, rng: random.Random) -> bytes:
    """Nothing of the request is left."""
    return rng.choice(
        (b"", b"null", b"[]", b"{}", b'"x"', b"5", b"true", b"[" * 100_000, b'{"a":' * 50_000, rng.randbytes(500),
        b"a=b&c=d",
         gzip.compress(body), b" " * 100_000, b"\xef\xbb\xbf{}", b"--x\r\n\r\n--x--")
    )  # fmt: skip


_SPOILED_BODIES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _truncated, _flipped, _flipped, _inserted, _inserted, _number_swollen, _encoded, _twice, _other,
)  # fmt: skip
