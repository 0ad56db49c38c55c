"""The command line as its user meets it: a process with arguments, output and an exit code."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.runtime.instance import required_cpus
from configs.load import load

ROOT = Path(__file__).parents[3]
HEAVY = ("ray", "vllm", "torch", "transformers", "numpy", "pydantic")


def baton(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command; standard output is no terminal."""
    command = [sys.executable, "-m", "cluster.cli.main", *arguments]
    variables = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom cluster.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("preset", ["laptop", "simulated"])
def test_config_check_says_that_a_preset_is_right(preset: str) -> None:
    done = baton("config", "check", f"configs/{preset}.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"configs/{preset}.yaml is right: ")


def test_config_check_says_what_is_wrong_and_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("applications:\n- import_path: cluster.app:build\n  args:\n    model: {pth: m}\n")
    done = baton("config", "check", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{file}: applications[0].args.model.path: is required\n"
        f"{file}: applications[0].args.model.pth: unknown key; did you mean 'path'? allowed: path, served_name, "
        "max_model_len\n"
    )


def test_config_show_fills_in_defaults_and_hides_the_secret() -> None:
    done = baton("config", "show", "configs/simulated.yaml", "--set", "security.cluster_secret=hunter2")
    assert done.returncode == 0, done.stderr
    assert "handoff_ttl_s: 120.0\n" in done.stdout
    assert "hunter2" not in done.stdout


def test_serve_refuses_a_port_in_use_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = baton("serve", "configs/simulated.yaml", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr.startswith(f"127.0.0.1:{port} is in use by ")
    assert done.stderr.endswith("end it or choose another with --port\n")


def test_serve_refuses_a_model_that_is_none(tmp_path: Path) -> None:
    done = baton("serve", "configs/simulated.yaml", "--port", "18999", "--model", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "is no local folder, no hub name (owner/name) and not one of smollm2, tiny" in done.stderr


def test_model_path_of_a_model_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    done = baton("model", "path", "smollm2", BATON_CACHE=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, "smollm2 is not here; `baton model fetch smollm2` gets it\n")


def test_model_list_shows_what_is_not_fetched(tmp_path: Path) -> None:
    done = baton("model", "list", BATON_CACHE=str(tmp_path))
    assert done.returncode == 0
    assert done.stdout.count("not fetched") == 2


def test_a_deployment_needs_the_cpus_of_all_its_replicas() -> None:
    assert required_cpus(load(ROOT / "configs" / "laptop.yaml").config) == 2
