"""Sends one case over a connection of its own and reads what comes back, as far as the case lets it."""

import asyncio
import time
from dataclasses import dataclass, field

import httptools

from tests.fuzz.cases import Case, Manner

ANSWER_S = 60.0
DRIPS = 12


@dataclass(slots=True)
class Answer:
    """What came. `status` is None when nothing did; `whole` says that HTTP's end of the answer was there."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False
    seconds: float = 0.0
    late: bool = False
    cut_short: bool = False  # the server closed while the request was being sent

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


async def send(port: int, case: Case) -> Answer:
    """The answer to a case; of one that leaves early, what it has seen."""
    began = time.perf_counter()
    answer = Answer()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(ANSWER_S):
            await _write(writer, case)
            if case.manner is not Manner.CUT:
                await _read(reader, case, answer)
    except TimeoutError:
        answer.late = True
    except OSError:
        answer.cut_short = True
    finally:
        writer.transport.abort()
    answer.seconds = time.perf_counter() - began
    return answer


async def _write(writer: asyncio.StreamWriter, case: Case) -> None:
    sent = case.head + case.body
    if case.manner is not Manner.DRIPPED:
        writer.write(sent)
        await writer.drain()
        return
    step = max(1, len(sent) // DRIPS)
    for at in range(0, len(sent), step):
        writer.write(sent[at : at + step])
        await writer.drain()
        await asyncio.sleep(0)


async def _read(reader: asyncio.StreamReader, case: Case, answer: Answer) -> None:
    parser = httptools.HttpResponseParser(answer)
    while not answer.whole:
        data = await reader.read(65_536)
        if not data:
            return
        try:
            parser.feed_data(data)
        except httptools.HttpParserError:
            return
        status = parser.get_status_code()
        if status >= 200:
            answer.status = status
        else:
            answer.whole = False  # 100 Continue
        if answer.status is not None and (case.manner is Manner.LEFT or case.method == "HEAD"):
            return
