"""What a leg's last delta says about its cost. Pure."""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from cluster.dataplane.frames import Delta, LegReport
from cluster.engines.engine import EngineRequest
from cluster.errors import InvalidRequest
from cluster.workers.hold import Held


class _Outputs(msgspec.Struct):
    n: int | None = 1


_outputs = msgspec.msgpack.Decoder(_Outputs)


def count_outputs(sampling: bytes) -> int:
    """How many outputs these SamplingParams ask for. Raises `InvalidRequest` when they are none."""
    try:
        return max(1, _outputs.decode(sampling).n or 1)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"these are no sampling parameters: {error}") from error


class Finish:
    """Finds a leg's last delta: the one with which every output has finished."""

    __slots__ = ("_unfinished", "outputs")

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs
        self._unfinished = outputs

    @property
    def reached(self) -> bool:
        """Every output has finished."""
        return self._unfinished <= 0

    def note(self, delta: Delta) -> bool:
        """Whether this delta is the last."""
        if delta.finish_reason is not None:
            self._unfinished -= 1
        return self.reached


class DecodeAnswer:
    """Follows the deltas of a decode leg: when the first came, and which is the last, that bears the report.

    `waited` adds to the report what the leg waited for.
    """

    __slots__ = ("_began", "_clock", "_finish", "_first_token_s", "_waited")

    def __init__(self, finish: Finish, waited: Callable[[LegReport], LegReport], clock: Callable[[], float]) -> None:
        self._finish = finish
        self._waited = waited
        self._clock = clock
        self._began = clock()
        self._first_token_s = 0.0

    @property
    def begun(self) -> bool:
        """Whether a token has come."""
        return self._first_token_s > 0

    def complete(self, delta: Delta) -> Delta:
        """The delta as it is sent."""
        if not self.begun:
            self._first_token_s = self._clock() - self._began
        is_last = self._finish.note(delta)
        delta.report = self._waited(complete(delta.report, self._first_token_s)) if is_last else None
        return delta


def complete(report: LegReport | None, first_token_s: float) -> LegReport:
    """The engine's own report, if it made one, with the time to a first token that the worker saw."""
    report = report or LegReport()
    return msgspec.structs.replace(report, first_token_s=report.first_token_s or first_token_s)


def after_handoff(report: LegReport, held: Held | None) -> LegReport:
    """The report of a leg that waited for its hand-off, if it did."""
    if held is None:
        return report
    waited = _after(report, held)
    return msgspec.structs.replace(
        waited, handoff_outcome=held.outcome, announced_blocks=held.announced_blocks, present_blocks=held.present_blocks
    )


def after_fetch(report: LegReport, fetched: Held | None) -> LegReport:
    """The report of a leg whose blocks came from another node's store first, if they did."""
    if fetched is None:
        return report
    return msgspec.structs.replace(_after(report, fetched), fetch_outcome=fetched.fetch_outcome)


def _after(report: LegReport, held: Held) -> LegReport:
    return msgspec.structs.replace(
        report, held_s=held.held_s, pulled_blocks=held.pulled_blocks, pulled_bytes=held.pulled_bytes
    )


def expecting(request: EngineRequest, held: Held) -> EngineRequest:
    """The request, told which blocks prefill announced, so that the engine can say what it computed all the same."""
    return replace(
        request,
        expected_blocks=held.announced_blocks,
        missing_reason="evicted" if held.outcome == "ready" else held.outcome,
    )
