"""One streamed completion, read as it comes, on a connection of its own: cheap, and it notices how it ends."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import httptools
import msgspec

DEADLINE_S = 120.0
"""A stream that takes longer is broken."""


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class Answer:
    """What came. `complaint` says what was wrong with it; empty when it is whole, or when the client left."""

    tokens: list[int] = field(default_factory=list)
    first_s: float | None = None
    longest_gap_s: float = 0.0
    left: bool = False
    complaint: str = ""


async def ask(host: str, port: int, body: bytes, leave_after_s: float | None) -> Answer:
    """Send a request to `/v1/completions` and read the answer to its end, or hang up before."""
    loop = asyncio.get_running_loop()
    try:
        transport, connection = await loop.create_connection(_Connection, host, port)
    except OSError as error:
        return Answer(complaint=f"no connection: {error}")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        await connection.ended(DEADLINE_S if leave_after_s is None else leave_after_s)
    except TimeoutError:
        connection.answer.left = leave_after_s is not None
        connection.answer.complaint = "" if leave_after_s is not None else f"not over after {DEADLINE_S:g} s"
    finally:
        transport.abort()
    return connection.answer


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.answer = Answer()
        self._parser = httptools.HttpResponseParser(self)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent_at = self._token_at = time.perf_counter()
        self._unread = b""
        self._body = b""
        self._finish_reason: str | None = None

    async def ended(self, timeout_s: float) -> None:
        """Return when the reply has ended, well or not. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            await self._over

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, msgspec.MsgspecError) as error:
            self._end(f"not a reply: {error!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection ended before the reply did ({exc or 'closed'})")

    # httptools

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != 200:
            self._body += body
            return
        *events, self._unread = (self._unread + body).split(b"\n\n")
        for event in events:
            self._event(event.removeprefix(b"data: "))

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._end(f"status {status}: {self._body[:300].decode(errors='replace')}")
        elif self._finish_reason != "length":
            self._end(f"the reply ended with {self._finish_reason} and {len(self.answer.tokens)} tokens")
        else:
            self._end("no [DONE]")

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]" and self._finish_reason == "length":
            self._end("")
            return
        event = _decode(data)
        if event.choices is None:
            self._end(f"an event of the stream: {data[:300].decode(errors='replace')}")
            return
        for choice in event.choices:
            self._took(choice)

    def _took(self, choice: _Choice) -> None:
        answer, now = self.answer, time.perf_counter()
        self._finish_reason = choice.finish_reason or self._finish_reason
        if not choice.token_ids:
            return
        if answer.first_s is None:
            answer.first_s = now - self._sent_at
        else:
            answer.longest_gap_s = max(answer.longest_gap_s, now - self._token_at)
        self._token_at = now
        answer.tokens += choice.token_ids

    def _end(self, complaint: str) -> None:
        if not self._over.done():
            self.answer.complaint = complaint
            self._over.set_result(None)
