"""Of a run whose driver is dead nothing stays, and of any other nothing is touched: on real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.runtime import mark as marks
from cluster.runtime.folders import run_folder
from cluster.runtime.mark import RunMark, parse, start_ticks
from cluster.runtime.processes import marked_processes
from cluster.runtime.reaper import Reaper
from cluster.runtime.reclaim import Reclaimed, clear_run, reclaim

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _runs_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `baton serve` that starts meanwhile must not clear what a test is about to, nor a test what others left."""
    monkeypatch.setenv(marks.FOLDER_VARIABLE, str(tmp_path))


@dataclass(frozen=True, slots=True)
class Tree:
    """A driver and the processes it started."""

    driver: subprocess.Popen[str]
    mark: RunMark
    shared_memory: Path
    pids: tuple[int, ...]

    def kill_driver(self) -> None:
        """SIGKILL, as the kernel does when memory ends."""
        self.driver.kill()
        self.driver.wait(10)

    def alive(self) -> list[int]:
        """Which of the processes still run."""
        return [pid for pid in self.pids if start_ticks(pid) is not None]


@contextlib.contextmanager
def running(kind: str) -> Iterator[Tree]:
    """A driver of `tests.unit.runtime.driver`; whatever the test does, it is gone afterwards."""
    command = [sys.executable, "-m", "tests.unit.runtime.driver", kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout
        said = driver.stdout.readline().split()
        mark = parse(said[0])
        assert mark
        tree = Tree(driver, mark, Path("/dev/shm") / said[1], tuple(int(pid) for pid in said[2:]))
        try:
            yield tree
        finally:
            driver.kill()
            clear_run(mark, grace_s=0)


def wait_until_gone(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Those still there after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if start_ticks(pid) is not None]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def test_processes_and_folder_of_a_killed_driver_are_reclaimed() -> None:
    with running("alone") as tree:
        tree.kill_driver()
        assert tree.alive() == list(tree.pids)
        reclaimed = reclaim()
        assert set(tree.pids) <= set(reclaimed.pids)
        assert tree.mark in reclaimed.folders
        assert (tree.alive(), run_folder(tree.mark).exists()) == ([], False)
        assert not tree.shared_memory.exists()


def test_a_live_run_is_not_touched() -> None:
    with running("alone") as tree:
        reclaimed = reclaim()
        assert not set(tree.pids) & set(reclaimed.pids)
        assert (tree.alive(), run_folder(tree.mark).exists()) == (list(tree.pids), True)
        assert tree.shared_memory.exists()


def test_a_dead_run_of_another_folder_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("alone") as tree:
        tree.kill_driver()
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv(marks.FOLDER_VARIABLE, str(tmp_path / "other"))
            assert reclaim() == Reclaimed((), ())
        assert (tree.alive(), run_folder(tree.mark).exists()) == (list(tree.pids), True)


def test_a_process_without_a_mark_is_not_touched() -> None:
    environment = {name: value for name, value in os.environ.items() if name != marks.VARIABLE}
    with subprocess.Popen(["sleep", "1000"], env=environment) as other, running("alone") as tree:
        tree.kill_driver()
        reclaim()
        assert other.poll() is None
        other.kill()


def test_the_reaper_ends_the_run_of_a_killed_driver_within_seconds() -> None:
    with running("reaper") as tree:
        tree.kill_driver()
        assert wait_until_gone(tree.pids, timeout_s=30) == []
        assert not run_folder(tree.mark).exists()


def test_the_reaper_is_deaf_to_the_signals_that_end_a_run() -> None:
    with running("reaper") as tree:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(tree.pids[0], number)
        tree.kill_driver()
        assert wait_until_gone(tree.pids, timeout_s=30) == []
        assert not run_folder(tree.mark).exists()


@contextlib.contextmanager
def stand_in() -> Iterator[tuple[RunMark, subprocess.Popen[bytes]]]:
    """A run of its own, of a driver that does nothing, with one process: this process may be a run's driver itself."""
    with subprocess.Popen(["sleep", "1000"]) as driver:
        mark = RunMark(driver.pid, start_ticks(driver.pid) or 0)
        with subprocess.Popen(["sleep", "1000"], env={**os.environ, marks.VARIABLE: str(mark)}) as member:
            try:
                yield mark, member
            finally:
                driver.kill()
                member.kill()


def test_closing_the_reaper_waits_until_the_run_is_cleared() -> None:
    with stand_in() as (mark, member):
        Reaper(mark).close()
        assert member.wait(5) == -signal.SIGTERM


def test_closing_a_reaper_that_was_killed_clears_the_run_all_the_same() -> None:
    with stand_in() as (mark, member):
        reaper = Reaper(mark)
        os.kill(reaper.pid, signal.SIGKILL)
        reaper.close()
        assert member.wait(5) == -signal.SIGTERM


def test_a_later_process_with_the_same_number_is_another_run() -> None:
    mark = marks.current()
    assert mark.is_alive()
    assert not RunMark(mark.pid, mark.start_ticks - 1).is_alive()
    assert parse(str(mark)) == mark


@pytest.mark.parametrize("text", ["", "12", "a:b", "1:2:3", "-1:5"])
def test_other_text_is_no_mark(text: str) -> None:
    assert parse(text) is None


def test_the_caller_is_never_among_the_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(marks.VARIABLE, "1:1")
    assert os.getpid() not in [process.pid for process in marked_processes()]
