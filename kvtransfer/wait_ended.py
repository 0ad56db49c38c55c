"""How a wait for a hand-off ended, from what is here at its end. Pure."""

from dataclasses import asdict, dataclass

from kvtransfer.protocol import HandoffEnded, HandoffOutcome
from kvtransfer.transport import HandoffState, PullResult

OUTCOMES: dict[HandoffState, HandoffOutcome] = {
    HandoffState.READY: "ready",
    HandoffState.FAILED: "failed",
    HandoffState.LATE: "late",
}


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """`present_blocks` of `announced_blocks` are pinned for the owner."""

    outcome: HandoffOutcome
    announced_blocks: int
    present_blocks: int
    pulled_blocks: int = 0
    pulled_bytes: int = 0
    waited_s: float = 0.0
    reason: str = ""

    def reply(self, request_id: int) -> HandoffEnded:
        """For whoever asked."""
        return HandoffEnded(id=request_id, **asdict(self))


def wait_ended(result: PullResult, is_known: bool, announced: int, present: int, waited_s: float) -> WaitEnded:
    """READY when every announced block is here, however the wait went; a failed hand-off of no blocks stays failed."""
    outcome, reason = OUTCOMES[result.state], result.reason
    if is_known and present == announced and (announced or outcome != "failed"):
        outcome, reason = "ready", ""
    elif outcome == "ready":
        outcome, reason = "failed", reason or f"{announced - present} of {announced} blocks are gone"
    elif outcome == "late":
        reason = reason or ("not announced in time" if not is_known else "not complete in time")
    return WaitEnded(outcome, announced, present, result.received_blocks, result.received_bytes, waited_s, reason)
