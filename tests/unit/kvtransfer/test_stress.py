"""A short run of the store's stress (`make stress-store` is the long one)."""

import pytest

from tests.benchmarks.stress_store import stress


@pytest.mark.parametrize(("operations", "disk"), [(60_000, False), (20_000, True)])
def test_a_crowd_of_engines_leaves_the_store_as_it_should_be(operations: int, disk: bool) -> None:
    assert stress(operations, disk, seed=1).endswith("all checks hold")
