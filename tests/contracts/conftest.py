"""The engines that every module of the engine suite asks, started once for each kind."""

import importlib
import warnings
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contracts.engine_kind import EngineKind
from tests.contracts.engine_pair import EnginePair, engine_pair

KINDS = [pytest.param("vllm", marks=[pytest.mark.engine, pytest.mark.timeout(300)]), pytest.param("simulated")]


@pytest.fixture(scope="package", params=KINDS)
def engine_kind(request: pytest.FixtureRequest) -> EngineKind:
    module = importlib.import_module(f"tests.contracts.engine_{request.param}")
    kind: EngineKind = module.KIND
    return kind


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def pair(engine_kind: EngineKind) -> AsyncIterator[EnginePair]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        async with engine_pair(engine_kind) as engines:
            yield engines
