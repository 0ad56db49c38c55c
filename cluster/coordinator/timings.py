"""Splits a request's time to the first token into its parts. Pure: times in, times out."""

from dataclasses import dataclass

from cluster.coordinator.observer import Timings
from cluster.dataplane.frames import LegReport


@dataclass(slots=True)
class Marks:
    """When things happened, on one monotonic clock in seconds; of the latest attempt. None: not (yet).

    A request starts when it comes, also if it has to stand in line.
    """

    started_at: float
    routed_at: float
    prefill_ended_at: float | None = None
    first_token_at: float | None = None


def split(marks: Marks, total_s: float, prefill: LegReport | None, decode: LegReport | None) -> Timings:
    """The parts, as far as they are known. A prefill leg that was lost or too late has no part in the first token.

    Blocks that had to come from another node's store before prefill count as transfer.
    """
    if marks.first_token_at is None:
        return Timings(total_s)
    ttft_s = marks.first_token_at - marks.started_at
    outcome = decode.handoff_outcome if decode is not None else None
    if decode is not None and outcome == "":
        return Timings(total_s, ttft_s, decode.queued_s, decode.first_token_s, decode.held_s or None)
    if marks.prefill_ended_at is None or outcome not in (None, "ready"):
        return Timings(total_s, ttft_s)
    # The two legs' ends come over two connections: prefill's may be heard of after decode's first token.
    leg_s = min(marks.prefill_ended_at, marks.first_token_at) - marks.routed_at
    fetch_s = min(prefill.held_s, leg_s) if prefill is not None else 0.0
    queue_s = min(prefill.queued_s, leg_s - fetch_s) if prefill is not None else 0.0
    held_s = decode.held_s if decode is not None else None
    return Timings(
        total_s=total_s,
        ttft_s=ttft_s,
        queue_s=queue_s,
        prefill_s=leg_s - fetch_s - queue_s,
        transfer_s=None if held_s is None else fetch_s + max(0.0, held_s - leg_s),
        decode_wait_s=None if held_s is None else max(0.0, marks.first_token_at - marks.routed_at - held_s),
    )
