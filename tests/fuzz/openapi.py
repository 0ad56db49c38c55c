"""Lets schemathesis loose on the gateway: requests made from what `/openapi.json` says, right and wrong ones.

`.peers/fuzz` holds schemathesis, in an environment of its own. Which of vLLM's answers are in its own schema is its
affair: what counts is that there is no 5xx, and that nothing is left.
"""

import argparse
import asyncio
import sys

from tests.fuzz.bodies import after_batch
from tests.fuzz.footprint import ErrorLog
from tests.fuzz.subject import running_subject

SCHEMATHESIS = ".peers/fuzz/bin/schemathesis"
PHASES = "examples,coverage,fuzzing"


async def run(seconds: int, seed: int) -> int:
    """Print what happened; how many findings there were, one for whatever schemathesis found."""
    with ErrorLog() as log:
        async with running_subject() as subject:
            words = (
                SCHEMATHESIS, "run", f"http://127.0.0.1:{subject.port}/openapi.json", "--phases", PHASES, "--checks",
                "not_a_server_error", "--seed", str(seed), "--max-time", str(seconds), "--no-shrink",
                "--continue-on-failure", "--request-timeout", "60", "--suppress-health-check", "all", "--warnings",
                "off",
            )  # fmt: skip
            process = await asyncio.create_subprocess_exec(*words)
            try:
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
            findings = await after_batch(subject, 0, log)
    print(*findings, sep="\n")
    return len(findings) + (status != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="what schemathesis may take")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    return 1 if asyncio.run(run(args.seconds, args.seed)) else 0


if __name__ == "__main__":
    sys.exit(main())
