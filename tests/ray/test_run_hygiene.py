"""`baton serve` survives the loss of each of its processes, or ends; and nothing of it stays: on the real command."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.runtime.mark import FOLDER_VARIABLE
from tests.support.driver import KINDS, Driver, Footprint, eventually, left_of
from tests.support.serving import CONFIGS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = ("configs/simulated.yaml", "--set", "prefill.replicas=1", "--set", "decode.replicas=1")
TINY = ("--model", "tiny", "--set", "model.max_model_len=2048")
LEAVE_S = 15.0
"""What the reaper may take after a driver that was killed."""


@pytest.fixture(scope="module", autouse=True)
def _runs_of_their_own() -> Iterator[None]:
    """A `baton serve` that starts elsewhere must not clear what a test here is about to. Sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv(FOLDER_VARIABLE, folder)
        yield


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """One prefill and one decode worker with simulated engines. The last test that uses it ends it."""
    with Driver(tmp_path_factory.mktemp("serve") / "log", *SMALL) as driver:
        driver.await_up()
        yield driver


def baton(*args: str) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    command = [sys.executable, "-m", "cluster.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=CONFIGS.parent)


def test_another_start_on_the_same_port_is_refused_and_touches_nothing(serving: Driver) -> None:
    kept = [kind for kind in KINDS if kind != "haproxy"]  # which Serve replaces to tell it of replicas
    before = {kind: serving.pids(kind) for kind in kept}
    second = baton("serve", *SMALL, "--port", str(serving.port))
    assert second.returncode == 2
    assert f"127.0.0.1:{serving.port} is in use by haproxy" in second.stderr
    assert {kind: serving.pids(kind) for kind in kept} == before
    assert serving.ask() == 200


def test_status_shows_the_running_service(serving: Driver) -> None:
    shown = baton("status")
    assert shown.returncode == 0
    assert f"tiny at {serving.url}: running (process {serving.process.pid}" in shown.stdout


# With one replica of each kind, the time that something is missing is the time its replacement takes to start.
@pytest.mark.parametrize(
    ("kind", "most_s"),
    [("prefill", 5), ("store", 5), ("decode", 30), ("haproxy", 30), ("haproxy_manager", 30)],
)
def test_a_killed_process_is_replaced_and_requests_are_answered_again(
    serving: Driver, kind: str, most_s: float
) -> None:
    killed = serving.kill(kind)
    serving.answers_within(most_s)
    eventually(lambda: bool(set(serving.pids(kind)) - {killed}), 30.0)
    serving.answers_within(most_s)


def test_a_restarted_controller_takes_over_the_replicas_that_run(serving: Driver) -> None:
    kinds = ("gateway", "prefill", "decode")
    before = {kind: serving.pids(kind) for kind in kinds}
    serving.replace_controller()
    assert {kind: serving.pids(kind) for kind in kinds} == before
    assert serving.ask() == 200


def test_a_stream_whose_only_decode_worker_dies_goes_on_in_the_next_one(serving: Driver) -> None:
    undisturbed = "".join(serving.stream(300))
    pieces = serving.stream(300)
    first = next(pieces)
    serving.kill("decode")
    assert "".join([first, *pieces]) == undisturbed


def test_a_killed_gateway_is_replaced(serving: Driver) -> None:
    serving.kill("gateway")
    serving.answers_within(60.0)


def test_ray_says_nothing_of_what_the_board_says(serving: Driver) -> None:
    assert "gone" in serving.output
    assert "raylet" not in serving.output


def test_an_interrupt_leaves_nothing(serving: Driver) -> None:
    seen = serving.footprint()
    assert seen.pids
    assert seen.ports
    assert serving.end(signal.SIGINT) == 0
    assert left_of(seen) == Footprint()


def test_what_a_killed_driver_and_a_killed_reaper_left_is_gone_after_the_next_start(tmp_path: Path) -> None:
    with Driver(tmp_path / "first", *SMALL) as first:
        first.await_said("DecodeWorker")
        seen = first.footprint()
        first.reaper().kill()
        first.end(signal.SIGKILL)
        with Driver(tmp_path / "second", *SMALL) as second:
            second.await_up()
            assert "of earlier runs" in second.output
            assert left_of(seen, second.footprint()) == Footprint()
            seen = second.footprint()
            second.end(signal.SIGKILL)
            eventually(lambda: left_of(seen) == Footprint(), LEAVE_S)


@pytest.mark.parametrize("kind", ["gcs_server", "raylet"])
def test_a_run_whose_ray_dies_says_so_and_ends(tmp_path: Path, kind: str) -> None:
    with Driver(tmp_path / "log", *SMALL) as driver:
        driver.await_said("DecodeWorker")
        seen = driver.footprint()
        driver.kill(kind)
        assert driver.process.wait(30) == 1
        assert f"Failed: Ray's {kind} died" in driver.output
        eventually(lambda: left_of(seen) == Footprint(), LEAVE_S)


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_a_killed_decode_replica_takes_its_engine_along_and_another_goes_on(tmp_path: Path) -> None:
    patient = ("--set", "timeouts.replica_s=240")
    with Driver(tmp_path / "log", "configs/laptop.yaml", *TINY, *patient) as driver:
        driver.await_up(400.0)
        undisturbed = "".join(driver.stream(500))
        engines = {kind: set(driver.pids(kind)) for kind in ("engine_core", "engine_worker")}
        assert [len(found) for found in engines.values()] == [2, 2]
        shared = driver.footprint().files
        pieces = driver.stream(500, silence_s=240.0)
        first = next(pieces)
        driver.kill("decode")
        eventually(lambda: all(len(found & set(driver.pids(kind))) == 1 for kind, found in engines.items()), 5.0)
        assert "".join([first, *pieces]) == undisturbed
        workers = driver.pids("prefill"), driver.pids("decode")
        driver.replace_controller()
        driver.answers_within(5.0)
        assert (driver.pids("prefill"), driver.pids("decode")) == workers
        seen = driver.footprint()
        assert driver.end(signal.SIGTERM) == 0
        assert left_of(seen) == Footprint()
        assert [path for path in shared if path.exists()] == []
