"""Without a terminal a replica is a line whenever its state changes, and none otherwise."""

import pytest

from cluster.cli.board import Lines, elapsed
from cluster.cli.replicas import ApplicationView, ReplicaView


def one(state: str) -> ReplicaView:
    """A replica that nobody knows the start of."""
    return ReplicaView("DecodeWorker", "a1", state, 7, None)


def test_a_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for state in ("loading", "loading", "ready"):
        lines.show(ApplicationView("starting", [one(state)]))
    assert capsys.readouterr().out == "DecodeWorker a1: loading\nDecodeWorker a1: ready\n"


def test_what_was_known_before_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    Lines([one("ready")]).show(ApplicationView("running", [one("ready")]))
    assert capsys.readouterr().out == ""


def test_elapsed_time_is_in_whole_seconds() -> None:
    assert elapsed(ReplicaView("Gateway", "b", "loading", 1, 100.0), 112.4) == "12 s"


def test_a_replica_that_is_not_listed_any_more_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines([one("ready")])
    lines.show(ApplicationView("starting", ()))
    assert capsys.readouterr().out == ""
    lines.show(ApplicationView("starting", [ReplicaView("DecodeWorker", "b2", "loading", 8, None)]))
    assert capsys.readouterr().out == "DecodeWorker a1: gone\nDecodeWorker b2: loading\n"
