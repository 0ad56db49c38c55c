"""Tickets to a private Ray."""

import os
from pathlib import Path

import pytest

from cluster.runtime import folders
from cluster.runtime.folders import make_run_folder, remove_run_folder, run_folder
from cluster.runtime.mark import current
from cluster.runtime.ticket import FILE, NothingRuns, Ticket, find_ticket, leave_ticket


@pytest.fixture(autouse=True)
def no_other_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine's user may be serving something."""
    monkeypatch.setattr(folders, "runs_folder", lambda: tmp_path)


def test_the_ticket_of_a_run_is_found_and_private() -> None:
    mark = current()
    make_run_folder(mark)
    try:
        leave_ticket(mark, Ticket("127.0.0.1:6379", "secret"))
        assert os.stat(run_folder(mark) / FILE).st_mode & 0o777 == 0o600
        assert find_ticket() == Ticket("127.0.0.1:6379", "secret")
    finally:
        remove_run_folder(mark)


def test_without_a_run_the_error_names_the_option() -> None:
    with pytest.raises(NothingRuns, match="--address"):
        find_ticket()
