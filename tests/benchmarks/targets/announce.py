"""How a target process tells the benchmark that it is up: one line on standard output."""

import json
import os

MARK = "READY "


def announce(**facts: object) -> None:
    """Print the facts (at least `port`) and the process that does the gateway's work."""
    print(MARK + json.dumps({"pids": [os.getpid()], **facts}), flush=True)
