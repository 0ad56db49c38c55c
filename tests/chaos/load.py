"""Clients that ask one request after the other, and judge every answer by the tokens that it must have."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx

from tests.chaos.requests import References, Request, Requests
from tests.chaos.stream import Answer, ask

PAUSE_S = 0.2
"""After an answer that failed: clients of a service that is away do not keep the machine busy."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask, and what is right."""

    url: str
    model: str
    requests: Requests
    references: References


@dataclass(slots=True)
class Tally:
    """What became of requests. `complaints` and `wrong` name each request's number."""

    whole: int = 0
    left: int = 0
    complaints: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    longest_gap_s: float = 0.0

    def __str__(self) -> str:
        counts = f"{self.whole} whole, {self.left} left, {len(self.complaints)} broken, {len(self.wrong)} wrong"
        return f"{counts}; first token at most {max(self.first_s, default=0.0):.1f} s, gap {self.longest_gap_s:.1f} s"

    @property
    def asked(self) -> int:
        """Requests in all."""
        return self.whole + self.left + len(self.complaints) + len(self.wrong)

    def judge(self, request: Request, answer: Answer, right: list[int]) -> None:
        """Count one answer. Of a client that left, what it had is right as far as it goes."""
        if answer.first_s is not None:
            self.first_s.append(answer.first_s)
        self.longest_gap_s = max(self.longest_gap_s, answer.longest_gap_s)
        got = answer.tokens
        if got != right[: len(got)]:
            self.wrong.append(f"request {request.number}: {_difference(got, right)}")
        elif answer.complaint:
            self.complaints.append(f"request {request.number} after {len(got)} tokens: {answer.complaint}")
        elif answer.left:
            self.left += 1
        elif got != right:
            self.wrong.append(f"request {request.number}: {len(got)} tokens instead of {len(right)}")
        else:
            self.whole += 1

    @staticmethod
    def sum(tallies: "Iterable[Tally]") -> "Tally":
        """All of them together."""
        total = Tally()
        for each in tallies:
            total.whole += each.whole
            total.left += each.left
            total.complaints += each.complaints
            total.wrong += each.wrong
            total.first_s += each.first_s
            total.longest_gap_s = max(total.longest_gap_s, each.longest_gap_s)
        return total


class Load:
    """`clients` of them ask the requests of these numbers, until there are no more or `finish` is called.

    What ended since the last `cut` is in `tally`.
    """

    def __init__(self, target: Target, clients: int, numbers: Iterable[int]) -> None:
        self._target = target
        self._clients = clients
        self._numbers = iter(numbers)
        self._over = False
        self.tally = Tally()
        self._past: list[Tally] = []

    @property
    def total(self) -> Tally:
        """Since the beginning."""
        return Tally.sum([*self._past, self.tally])

    async def run(self) -> None:
        """Return when all clients have had their last answer."""
        async with asyncio.TaskGroup() as clients:
            for _ in range(self._clients):
                clients.create_task(self._client())

    def finish(self) -> None:
        """No request after those in flight."""
        self._over = True

    def cut(self) -> Tally:
        """Begin a new tally; the one before."""
        ended, self.tally = self.tally, Tally()
        self._past.append(ended)
        return ended

    async def _client(self) -> None:
        address, target = httpx.URL(self._target.url), self._target
        assert address.port is not None, f"{target.url} names no port"
        for number in self._numbers:
            if self._over:
                break
            request = target.requests[number]
            answer = await ask(address.host, address.port, request.body(target.model), request.leave_after_s)
            self.tally.judge(request, answer, target.references.of(request))
            if answer.complaint:
                await asyncio.sleep(PAUSE_S)


def _difference(got: list[int], right: list[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), len(right))
    return f"token {at} of {len(right)} is {got[at]}" if at < len(got) else "too many"
