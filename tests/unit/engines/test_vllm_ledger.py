"""How many tokens were cached, and how many blocks were computed again and why."""

import pytest

from cluster.engines.vllm_ledger import Ledger, Leg, Recomputed
from kvtransfer.connector.plan import LoadVerdict

BLOCK = 32


def leg(prompt_tokens: int = 320, expected_blocks: int = 0) -> Leg:
    return Leg(prompt_tokens, expected_blocks, "late", started_s=0.0)


@pytest.mark.parametrize(
    ("verdicts", "counted", "cached"),
    [
        ([], 0, 0),
        ([], 96, 96),
        ([LoadVerdict(10, 0, 0, "")], 320, 319),
        ([LoadVerdict(3, 7, 7, "corrupt")], 320, 96),
        ([LoadVerdict(0, 10, 0, "corrupt")], 0, 0),
    ],
)
def test_cached_tokens_are_those_not_computed_here(verdicts: list[LoadVerdict], counted: int, cached: int) -> None:
    one = leg()
    one.verdicts += verdicts
    assert one.cached_tokens(counted, BLOCK) == cached


@pytest.mark.parametrize(
    ("expected", "verdicts", "counted", "recomputed"),
    [
        (10, [LoadVerdict(10, 0, 0, "")], 320, Recomputed(0, "")),
        (10, [], 0, Recomputed(10, "late")),
        (10, [LoadVerdict(4, 0, 0, "")], 128, Recomputed(6, "late")),
        (10, [LoadVerdict(3, 7, 7, "corrupt")], 320, Recomputed(7, "corrupt")),
        (10, [LoadVerdict(0, 10, 0, "failed")], 0, Recomputed(10, "failed")),
        (0, [LoadVerdict(3, 7, 7, "corrupt")], 320, Recomputed(7, "corrupt")),
        (0, [], 0, Recomputed(0, "")),
    ],
)
def test_expected_blocks_that_were_computed_are_counted_with_their_reason(
    expected: int, verdicts: list[LoadVerdict], counted: int, recomputed: Recomputed
) -> None:
    one = leg(expected_blocks=expected)
    one.verdicts += verdicts
    assert one.recomputed(counted, BLOCK) == recomputed


def test_prompts_are_queued_until_their_first_token() -> None:
    ledger = Ledger()
    first, second = leg(100), leg(50)
    ledger.open("a", first)
    ledger.open("b", second)
    first.first_token_s = 0.1
    assert (len(ledger), ledger.queued_prefill_tokens) == (2, 50)
    ledger.close("a")
    ledger.close("b")
    ledger.close("b")
    assert (len(ledger), ledger.queued_prefill_tokens) == (0, 0)


def test_a_verdict_on_a_leg_that_is_gone_is_dropped() -> None:
    Ledger().judge("gone", [LoadVerdict(1, 0, 0, "")])
