"""Some hundred malformed and odd requests to a whole gateway, always the same: what `make fuzz` does for longer."""

import warnings

import pytest

from tests.fuzz.bodies import campaign_of
from tests.fuzz.footprint import ErrorLog

SEED = 20
CASES = 300


@pytest.mark.filterwarnings("ignore")  # of vLLM and of what it uses
async def test_no_request_however_odd_is_answered_with_5xx_or_leaves_anything_behind() -> None:
    from tests.fuzz.subject import running_subject  # imports vLLM, which takes its time

    with ErrorLog() as log, warnings.catch_warnings():
        async with running_subject() as subject:
            result = await (await campaign_of(subject, SEED)).run(subject, CASES, log)
    assert result.findings == []
    assert result.statuses["200"] > 20
    assert result.statuses["400"] > 100
