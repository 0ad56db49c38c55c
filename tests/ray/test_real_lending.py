"""Real vLLM, one prefill and one decode worker: each is lent to the other's role and back while requests run.

Each request's greedy tokens are those it got alone before. Running work finishes where it is: nothing has to go on
elsewhere.
"""

import asyncio

import pytest

from tests.chaos.real_faults import SwapRoles
from tests.chaos.real_trial import Case, service, trial
from tests.support.serving import TestCluster

pytestmark = [pytest.mark.ray, pytest.mark.engine, pytest.mark.alone, pytest.mark.timeout(600)]


async def test_the_decode_worker_prefills_for_a_while_and_no_answer_differs(
    cluster: TestCluster, tiny_model: str
) -> None:
    with cluster.serve(service(tiny_model, decodes=1, stall_s=30.0)) as served:
        from cluster.cli.far_workers import FarRoles  # imports ray, which reads its environment then

        (row,) = await trial(served, 2, tiny_model, [Case("lent and back", SwapRoles(8.0))])
        views = await asyncio.to_thread(lambda: FarRoles().views())
        other = {"prefill": "decode", "decode": "prefill"}
        legs = [served.metric(f"baton_worker_legs_{other[view.home]}", view.replica_id) for view in views]
    assert row.holds, row
    assert row.resumed == 0
    assert [view.role == view.home for view in views] == [True, True]
    assert min(legs) > 0, "both worked in the other's role"
