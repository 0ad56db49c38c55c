"""Some hundred malformed frames at each end of each protocol, always the same: what `make fuzz` does for longer."""

import pytest

from tests.fuzz.footprint import ErrorLog
from tests.fuzz.frames import campaign
from tests.fuzz.victims import VICTIMS

SEED = 20
FRAMES = 300


@pytest.mark.parametrize("name", VICTIMS)
async def test_no_frame_however_odd_breaks_a_peer_or_leaves_anything_behind(name: str) -> None:
    with ErrorLog() as log:
        async with VICTIMS[name]() as victim:
            tally = await campaign(victim, SEED, FRAMES, log)
    assert tally.findings == []
    assert tally.frames >= FRAMES
