"""Nothing listens on all interfaces unless a file asks for it."""

import socket
from pathlib import Path

import psutil
import pytest

from cluster.dataplane.server import ServerSettings, WorkerServer
from configs.load import load
from configs.serve_file import HttpOptions
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transports.tcp import TcpTransport
from tests.unit.dataplane.peers import MODEL, SECRET, ManualLegs, worker_info

EVERYWHERE = {"0.0.0.0", "::"}
CONFIGS = Path(__file__).parents[2] / "configs"


def _listening() -> set[str]:
    """The addresses that this process listens on, by TCP."""
    found = psutil.Process().net_connections("tcp")
    return {str(each.laddr.ip) for each in found if each.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_workers_and_stores_listen_on_the_address_that_they_are_given(host: str) -> None:
    before = _listening()
    worker = WorkerServer(ServerSettings(worker_info(), SECRET, MODEL), ManualLegs())
    store = StoreServer(StoreSettings(4096, f"baton-test-{host}"), SECRET, "fp", TcpTransport(SECRET, "fp", host))
    await worker.listen(host)
    await store.start()
    try:
        assert _listening() - before <= {host}
        assert host in _listening()
    finally:
        await store.close()
        await worker.close()


def test_the_service_answers_this_machine_only_where_a_file_says_nothing() -> None:
    assert HttpOptions().host == "127.0.0.1"


def test_only_files_for_more_than_one_machine_ask_for_all_interfaces() -> None:
    asked = {file.name for file in CONFIGS.glob("*.yaml") if load(file).http.host in EVERYWHERE}
    assert asked == {"gpu_8b.yaml", "gpu_70b_tp4.yaml", "gpu_mixed.yaml"}


def test_what_runs_on_one_machine_listens_on_loopback() -> None:
    deployment = load(CONFIGS / "simulated.yaml").on_one_machine("tiny")
    assert deployment.config.security.listen_host == "127.0.0.1"
    assert socket.gethostbyname(deployment.http.host) == "127.0.0.1"
