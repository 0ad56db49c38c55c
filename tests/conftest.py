"""What every test stands on."""

import logging

import pytest

from cluster.logs import PACKAGES


@pytest.fixture(autouse=True)
def _our_log_lines_are_seen() -> None:
    """vLLM's API app sets the root logger to ERROR when it is imported, which would hide our warnings from `caplog`."""
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.INFO)
