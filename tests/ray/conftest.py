"""One Ray cluster for all tests of this folder, and the deployments they share."""

import sys
from collections.abc import Iterator

import pytest

from cluster.models.fetch import resolve
from cluster.runtime.flags import serve_flags
from tests.support.serving import TestCluster, two_nodes


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    """Two nodes, labelled a and b."""
    assert "ray" not in sys.modules, "a test module imports ray when it is collected: Ray has read its environment"
    with two_nodes(serve_flags()) as running:
        yield running


@pytest.fixture(scope="session")
def demo_model() -> str:
    """SmolLM2-135M-Instruct, fetched when it is not there."""
    return str(resolve("smollm2"))


@pytest.fixture(scope="session")
def tiny_model() -> str:
    """A random Llama of two layers with a real tokenizer."""
    return str(resolve("tiny"))
