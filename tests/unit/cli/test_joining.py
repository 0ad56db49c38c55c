"""Commands that join a running service: ray reads its token when it is imported, so joining comes first."""

import subprocess
import sys

import pytest

PROBE = """
import sys
from cluster.runtime import ticket
def join(self):
    print("ray" in sys.modules)
    sys.exit(0)
ticket.Ticket.join = join
from cluster.cli.main import main
sys.argv = ["baton", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("command", ["stats", "ls", "verify", "drop --all"])
def test_a_store_command_joins_before_it_imports_ray(command: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROBE, "store", *command.split(), "--address", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.stdout.strip() == "False", told.stderr
