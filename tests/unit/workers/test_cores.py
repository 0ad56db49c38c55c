"""Exclusive cores across the processes of a host."""

import asyncio
import os
import sys

import pytest

from cluster.workers.cores import CoreLease

pytestmark = pytest.mark.cores

ALL = len(os.sched_getaffinity(0))
HOLDER = """
import asyncio, sys
from cluster.workers.cores import CoreLease
lease = asyncio.run(CoreLease.take(%d, 0.0))
print(lease.cores, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def free_cores() -> None:
    """Skips where another replica of this host holds cores, e.g. a deployment under test."""
    with asyncio.run(CoreLease.take(ALL, 0.0)) as lease:
        if lease.shared:
            pytest.skip("somebody holds cores of this machine")


async def test_what_is_leased_is_not_leased_again_until_it_is_given_back(free_cores) -> None:
    with await CoreLease.take(ALL, 0.0) as everything:
        assert (everything.cores, everything.shared) == (sorted(os.sched_getaffinity(0)), ())
        with await CoreLease.take(1, 0.0) as late:
            assert len(late.shared) == 1
    with await CoreLease.take(1, 0.0) as after:
        assert after.shared == ()


async def test_a_process_that_dies_gives_its_cores_back(free_cores, caplog) -> None:
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER % ALL, stdin=pipe, stdout=pipe)
    assert holder.stdout is not None
    await holder.stdout.readline()
    with await CoreLease.take(1, 0.0) as shared:
        assert len(shared.shared) == 1
        assert "every core is taken" in caplog.text
    holder.kill()
    await holder.communicate()
    with await CoreLease.take(ALL, 0.0) as lease:
        assert lease.shared == ()


async def test_more_cores_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="`cores: 100000` asks for more"):
        await CoreLease.take(100_000, 0.0)
