"""One gateway app for the session, built over a fake backend that each test gets fresh."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

import tests.support.quiet_imports  # noqa: F401
from cluster.gateway.app import build_gateway_app
from cluster.gateway.settings import GatewaySettings
from cluster.models.tiny import ensure_tiny_llama
from tests.fakes.backend import FakeBackend

MAX_BODY_BYTES = 512 * 1024
BODY_S = 0.3


def pytest_collection_modifyitems(items):
    """vLLM's use of deprecated things is its own affair."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:vllm"))


class CurrentBackend:
    """Delegates to the running test's backend: building an app takes seconds, so the session shares it."""

    def __init__(self) -> None:
        self.now = FakeBackend()

    def admit(self, outputs):
        self.now.admit(outputs)

    def generate(self, request):
        return self.now.generate(request)

    async def check_health(self):
        await self.now.check_health()


class FixedMetrics:
    def render(self) -> bytes:
        return b"baton_test 1.0\n"


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return ensure_tiny_llama()


@pytest.fixture(scope="session")
def current_backend() -> CurrentBackend:
    return CurrentBackend()


def build(model_folder: Path, backend, max_model_len: int = 512, **api_args):
    settings = GatewaySettings(
        model_path=str(model_folder),
        served_name="tiny",
        max_body_bytes=MAX_BODY_BYTES,
        body_s=BODY_S,
        max_model_len=max_model_len,
        api_args=api_args,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return asyncio.run(build_gateway_app(settings, backend, FixedMetrics()))


@pytest.fixture(scope="session")
def plain_app(model_folder, current_backend):
    """Without a tool parser: the fast writer is in use."""
    return build(model_folder, current_backend)


@pytest.fixture(scope="session")
def tools_app(model_folder, current_backend):
    """With hermes tool calls."""
    return build(model_folder, current_backend, tool_call_parser="hermes", enable_auto_tool_choice=True)


@pytest.fixture
def backend(current_backend) -> Iterator[FakeBackend]:
    current_backend.now = FakeBackend()
    yield current_backend.now
    assert current_backend.now.open == set(), "a generation outlived its request"


@pytest.fixture
async def client(plain_app, backend) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(plain_app) as client:
        yield client


@pytest.fixture
async def tools_client(tools_app, backend) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(tools_app) as client:
        yield client


def open_client(app) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway")
