"""Real vLLM, one prefill and two decode workers under load, and one of them stands still.

`tests/chaos/real_engines.py` has the other faults: this one says the most in the least time.
"""

import pytest

from tests.chaos.real_faults import StopCore, cores
from tests.chaos.real_trial import Case, service, trial
from tests.support.serving import TestCluster

pytestmark = [pytest.mark.ray, pytest.mark.engine, pytest.mark.alone, pytest.mark.timeout(600)]


async def test_a_decode_engine_that_stands_still_breaks_no_stream_and_is_replaced(
    cluster: TestCluster, tiny_model: str
) -> None:
    stopped = Case("decode engine core stopped", StopCore("decode"), lambda parts: cores(parts, "decode"))
    with cluster.serve(service(tiny_model, decodes=2, stall_s=6.0)) as served:
        (row,) = await trial(served, 3, tiny_model, [stopped])
    assert row.holds, row
