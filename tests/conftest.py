"""What every test stands on."""

import logging

import hypothesis
import pytest

from cluster.logs import PACKAGES

# What an example takes says more about what else the machine does than about the code.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


@pytest.fixture(autouse=True)
def _our_log_lines_are_seen() -> None:
    """vLLM's API app sets the root logger to ERROR when it is imported, which would hide our warnings from `caplog`."""
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.INFO)
