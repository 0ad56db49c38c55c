"""What is wrong with an answer, whatever was asked. Pure."""

import json
from collections.abc import Iterator
from typing import Any

from tests.fuzz.cases import Case, Manner
from tests.fuzz.http import Answer

LONGEST_ERROR_BYTES = 32_768
SLOW_S = 60.0
"""An answer takes milliseconds, a big one waits in line for others; a shared machine takes its time."""


def wrong(case: Case, answer: Answer) -> str | None:
    """Why an answer is a finding; None when it is not."""
    return next(_faults(case, answer), None)


def _faults(case: Case, answer: Answer) -> Iterator[str]:
    if case.manner is Manner.CUT:
        return
    if answer.late or answer.seconds > SLOW_S:
        yield f"the answer took {answer.seconds:.1f} s"
    if answer.status is None and answer.cut_short:
        return  # by an answer to the first part of the request: it is lost with what was still being sent
    if answer.status is None:
        yield "the connection was closed without an answer"
        return
    if answer.status >= 500:
        yield f"status {answer.status}: {answer.body[:500]!r}"
    if case.manner is Manner.LEFT or case.method == "HEAD":
        return
    if not answer.whole:
        yield f"the answer was cut off after {answer.body[-300:]!r}"
    elif answer.headers.get("content-type", "").startswith("text/event-stream"):
        yield from _faults_of_stream(answer.body)
    elif answer.status >= 400:
        yield from _faults_of_error(case, answer)
    elif answer.headers.get("content-type", "").startswith("application/json"):
        yield from _not_json(answer.body)


def _faults_of_error(case: Case, answer: Answer) -> Iterator[str]:
    if len(answer.body) > LONGEST_ERROR_BYTES:
        yield f"an error of {len(answer.body)} bytes"
    if b"Traceback" in answer.body or b"/site-packages/" in answer.body:
        yield f"an error shows our insides: {answer.body[:500]!r}"
    if answer.headers.get("content-type", "").startswith("application/json"):
        yield from _not_json(answer.body)


def _faults_of_stream(body: bytes) -> Iterator[str]:
    """A client must see a whole stream: its end, or the client's own fault as its last event."""
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    if not lines:
        yield "an empty stream"
        return
    for line in lines:
        if line != b"[DONE]":
            yield from _not_json(line)
            yield from _faults_of_event(json.loads(line))
    last = lines[-1]
    if not (last == b"[DONE]" or b'"message_stop"' in last or b'"response.' in last or b'"error"' in last):
        yield f"a stream without an end: {last[-300:]!r}"


def _faults_of_event(event: Any) -> Iterator[str]:
    error = event.get("error") if isinstance(event, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    ours = (isinstance(code, int) and code >= 500) or kind in ("api_error", "InternalServerError")
    if ours or (isinstance(event, dict) and event.get("type") == "error" and "InternalServer" in json.dumps(event)):
        yield f"an error event: {json.dumps(event)[:500]}"


def _not_json(body: bytes) -> Iterator[str]:
    try:
        json.loads(body)
    except ValueError:
        yield f"no JSON: {body[:300]!r}"
