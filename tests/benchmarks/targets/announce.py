"""How a target process tells the benchmark that it is up: one line on standard output."""

import json
import os

MARK = "READY "


def announce(name: str, **facts: object) -> None:
    """Say that the target `name` is up: its `port`, and the processes that do the gateway's work (else this one)."""
    print(MARK + json.dumps({"name": name, "pids": [os.getpid()], **facts}), flush=True)
