"""What the fault tests share."""

from pathlib import Path

import pytest

from cluster.engines.simulated.engine import kv_fingerprint
from tests.unit.engines.simulated.bench import settings, write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def fingerprint(model: Path) -> str:
    """What stores of the engines here are started with."""
    return kv_fingerprint(settings(model)).digest()
