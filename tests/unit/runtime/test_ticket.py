"""Tickets to a private Ray."""

import os

import pytest

from cluster.runtime.folders import make_run_folder, remove_run_folder, run_folder
from cluster.runtime.mark import current
from cluster.runtime.ticket import FILE, NothingRuns, Ticket, find_ticket, leave_ticket


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
