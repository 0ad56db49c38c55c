"""What a run says of itself, in `run.json` of its folder, for `baton status`: written whole, then renamed."""

import json
import os
from collections.abc import Mapping
from typing import Any

from cluster.runtime.folders import existing_runs, run_folder
from cluster.runtime.mark import RunMark

FILE = "run.json"


def write_record(mark: RunMark, record: Mapping[str, Any]) -> None:
    """Replace the record of a run."""
    target = run_folder(mark) / FILE
    making = target.with_suffix(".new")
    making.write_text(json.dumps(record), encoding="utf-8")
    os.replace(making, target)


def live_records() -> dict[RunMark, dict[str, Any]]:
    """The record of every run whose driver is alive and has written one."""
    found: dict[RunMark, dict[str, Any]] = {}
    for mark in existing_runs():
        if mark.is_alive():
            try:
                found[mark] = json.loads((run_folder(mark) / FILE).read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
    return found
