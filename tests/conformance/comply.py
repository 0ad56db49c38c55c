"""llm-comply's three suites against one or two running servers: passed of total, and what each failing test says.

`--beside URL` runs the same suites against a second server, for instance vLLM's own, for comparison. Always ends with
0: the figures are for people.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tests.conformance.server import first_model, parser

SUITES = {"openai-chat": "OpenAI chat", "open-responses": "Open Responses", "anthropic": "Anthropic"}
TIMEOUT_S = 120
SUITE_DEADLINE_S = 1800


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite's results: `failures` by test id. `total` counts the skipped tests, which no model of ours can pass."""

    passed: int
    total: int
    skipped: int
    failures: dict[str, list[str]]


def run_suite(suite: str, base_url: str, model: str) -> Suite:
    """One suite in a process of its own."""
    command = [
        *(sys.executable, "-m", "llm_comply.cli", "run", "--format", suite, "--base-url", f"{base_url}/v1"),
        *("--model", model, "--api-key", "none", "--timeout", str(TIMEOUT_S), "--json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SUITE_DEADLINE_S)
    start = done.stdout.find("{")
    if start < 0:
        raise RuntimeError(f"llm-comply said nothing:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return read(json.loads(done.stdout[start:]))


def read(report: dict[str, Any]) -> Suite:
    """llm-comply's JSON report."""
    tests = report["results"]
    failures = {test["id"]: test.get("errors", []) for test in tests if test["status"] == "failed"}
    skipped = sum(test["status"] == "skipped" for test in tests)
    return Suite(len(tests) - len(failures) - skipped, len(tests), skipped, failures)


def show(name: str, base_url: str, model: str | None) -> None:
    """Run and print all suites against one server."""
    served = model or first_model(base_url)
    print(f"{name}: {base_url}, model {served}")
    for suite, title in SUITES.items():
        result = run_suite(suite, base_url, served)
        print(f"  {title.ljust(16)} {result.passed}/{result.total} ({result.skipped} skipped)", flush=True)
        for test, errors in result.failures.items():
            print(f"    {test}: {'; '.join(errors[:3])[:300]}")


def parse() -> argparse.Namespace:
    made = parser(__doc__.splitlines()[0])
    made.add_argument("--beside", help="base URL of a second server")
    return made.parse_args()


def main() -> None:
    options = parse()
    print(f"llm-comply {version('llm-comply')}")
    show("this server", options.base_url, options.model)
    if options.beside:
        show("beside it", options.beside, None)


if __name__ == "__main__":
    main()
