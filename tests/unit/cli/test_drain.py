"""`baton drain` against workers that need no Ray, and what `baton status` says of them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import typer

from cluster.cli.out_of_service import MOVING_S, Watch, WorkerView, find, force_out, put_back, take_out
from cluster.cli.progress import streams_shown
from cluster.cli.service import out_of_service, words
from tests.unit.cli.test_command import baton

IDLE = WorkerView("", "decode", healthy=True, draining=False, live_legs=0, finish_s=60.0)


class Workers:
    """A decode worker `ab12`, by whatever name and number; `passes` is called each time that they are looked at."""

    def __init__(self, *views: WorkerView, passes: Callable[["Workers"], None] = lambda _: None) -> None:
        self.now = {view.replica_id: view for view in views}
        self.asked: list[tuple[str, float | None]] = []
        self._passes = passes

    def views(self) -> list[WorkerView]:
        self._passes(self)
        return list(self.now.values())

    def drain(self, replica_id: str, finish_s: float | None) -> None:
        self.asked.append((replica_id, finish_s))
        self.change(replica_id, draining=True)

    def undrain(self, replica_id: str) -> None:
        self.change(replica_id, draining=False)

    def change(self, replica_id: str, **changes: object) -> None:
        self.now[replica_id] = replace(self.now[replica_id], **changes)


class Time:
    """Passes while somebody sleeps; remembers what was shown."""

    def __init__(self) -> None:
        self.now = 0.0
        self.shown: list[int] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def watch(self) -> Watch:
        return Watch(lambda worker: self.shown.append(worker.live_legs), lambda: self.now, self.sleep)


def worker(replica_id: str, **changes: object) -> WorkerView:
    return replace(IDLE, replica_id=replica_id, **changes)


def ends_one(workers: Workers) -> None:
    """A draining worker's streams end one by one."""
    for one in list(workers.now.values()):
        if one.draining and one.live_legs:
            workers.change(one.replica_id, live_legs=one.live_legs - 1)


def test_a_worker_is_drained_by_how_its_id_begins_and_watched_until_nothing_runs_there() -> None:
    workers, time = Workers(worker("ab12", live_legs=4), worker("cd34"), passes=ends_one), Time()
    last = take_out(workers, "ab", 5.0, time.watch())
    assert workers.asked == [("ab12", 5.0)]
    assert time.shown == [2, 1, 0]
    assert (last.live_legs, last.draining) == (0, True)


def test_streams_that_nobody_takes_are_not_waited_for_for_ever() -> None:
    workers, time = Workers(worker("ab12", live_legs=3), worker("cd34")), Time()
    assert take_out(workers, "ab12", None, time.watch()).live_legs == 3
    assert IDLE.finish_s + MOVING_S <= time.now < IDLE.finish_s + MOVING_S + 2


def test_a_worker_that_goes_while_it_is_watched_is_empty() -> None:
    def leaves(workers: Workers) -> None:
        if workers.now.get("ab12", IDLE).draining:
            del workers.now["ab12"]

    workers = Workers(worker("ab12", live_legs=3), worker("cd34"), passes=leaves)
    assert take_out(workers, "ab12", None, Time().watch()).live_legs == 0


def test_an_unknown_worker_is_an_error_that_says_which_there_are() -> None:
    there = [worker("cd34", draining=True), worker("ab12"), worker("ef56", role="prefill", healthy=False)]
    with pytest.raises(typer.BadParameter) as error:
        find(there, "xy")
    assert str(error.value) == (
        "'xy' is no worker; there are: decode ab12, decode cd34 (draining), prefill ef56 (unhealthy)"
    )
    with pytest.raises(typer.BadParameter, match="'a' begins the ids of more than one worker; there are: decode ab12"):
        find([worker("ab12"), worker("ac12")], "a")
    assert find([worker("ab"), worker("ab12")], "ab").replica_id == "ab"


@pytest.mark.parametrize("other", [{"role": "prefill"}, {"draining": True}, {"healthy": False}])
def test_the_last_worker_that_decodes_is_taken_out_by_force_only(other: dict[str, object]) -> None:
    workers = Workers(worker("ab12"), worker("cd34", **other))
    with pytest.raises(typer.BadParameter, match=r"the last worker in service that decodes.*--force"):
        take_out(workers, "ab12", None, Time().watch())
    assert workers.asked == []
    assert force_out(workers, "ab12", None, Time().watch()).draining


def test_the_last_prefill_worker_may_go_for_decode_workers_compute_prompts_themselves() -> None:
    workers = Workers(worker("ab12", role="prefill"), worker("cd34"))
    assert take_out(workers, "ab12", None, Time().watch()).draining


def test_two_people_who_drain_the_last_two_at_once_leave_one() -> None:
    def somebody_else(workers: Workers) -> None:
        if workers.now["ab12"].draining:
            workers.change("cd34", draining=True)

    workers = Workers(worker("ab12"), worker("cd34"), passes=somebody_else)
    with pytest.raises(typer.BadParameter, match="the last worker"):
        take_out(workers, "ab12", None, Time().watch())
    assert not workers.now["ab12"].draining


def test_undo_puts_back_what_drains_and_nothing_else() -> None:
    workers = Workers(worker("ab12", draining=True), worker("cd34"))
    assert put_back(workers, "ab12").replica_id == "ab12"
    assert not workers.now["ab12"].draining
    with pytest.raises(typer.BadParameter, match="decode cd34 does not drain"):
        put_back(workers, "cd34")


def test_progress_is_a_line_for_each_number_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with streams_shown() as show:
        for left in (3, 3, 0):
            show(worker("ab12", live_legs=left))
    assert capsys.readouterr().err == "ab12: 3 streams left\nab12: 0 streams left\n"


def test_status_tells_draining_from_drained() -> None:
    said = {"ab12": (1, 2, 0), "cd34": (1, 0, 0), "ef56": (0, 3, 1)}
    names = ("draining", "running", "waiting")
    metrics = "\n".join(
        f'baton_worker_{name}{{replica="{replica_id}"}} {float(value)}'
        for replica_id, values in said.items()
        for name, value in zip(names, values, strict=True)
    )
    assert words(metrics) == {"ab12": "draining", "cd34": "drained"}
    assert out_of_service("http://127.0.0.1:9") == {}


def test_the_command_says_what_becomes_of_the_worker() -> None:
    shown = " ".join(baton("drain", "--help").stdout.split())
    assert "until `--undo`, or until Serve replaces it" in shown
    assert "begins in service" in shown
    refused = baton("drain", "ab12", "--undo", "--force")
    assert (refused.returncode, "--undo goes without" in refused.stderr) == (2, True)
