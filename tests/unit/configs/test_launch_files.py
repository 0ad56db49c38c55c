"""Every file a user launches with is what Ray expects, by Ray's own schemas, and what we do."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cluster.doctor.facts import FLAGS
from configs.load import load

CONFIGS = Path(__file__).parents[3] / "configs"
RAY_UP = sorted((CONFIGS / "ray_up").glob("*.yaml"))
SERVE_FILES = sorted(CONFIGS.glob("*.yaml"))
MANIFEST = CONFIGS / "kuberay" / "ray_service.yaml"


def read(file: Path) -> Any:
    """A file's YAML."""
    return yaml.safe_load(file.read_text())


def environment(file: Path) -> dict[str, str]:
    """The variables an env file sets."""
    lines = re.findall(r"^([A-Z_]+)=(.*)$", file.read_text(), flags=re.MULTILINE)
    return {name: " ".join(shlex.split(value)) for name, value in lines}


@pytest.fixture(scope="module")
def ray_schema() -> Any:
    """Of `ray up`'s files, as installed. Ray itself is not imported."""
    spec = find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    return json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text())


@pytest.mark.parametrize("file", RAY_UP, ids=lambda file: file.name)
def test_a_cluster_file_is_right_by_rays_schema(file: Path, ray_schema: Any) -> None:
    jsonschema.validate(read(file), ray_schema)


@pytest.mark.parametrize("file", RAY_UP, ids=lambda file: file.name)
def test_every_node_starts_with_the_flags_token_and_enough_sockets(file: Path) -> None:
    content = read(file)
    for command in (content["head_start_ray_commands"][-1], content["worker_start_ray_commands"][-1]):
        assert re.match(r"set -a; \. ~/baton/configs/ray_up/node\.env; set \+a; ulimit -n 65536;", command)
    assert "~/.ray/auth_token" in content["file_mounts"].values()


@pytest.mark.parametrize("file", RAY_UP, ids=lambda file: file.name)
def test_both_pools_have_nodes(file: Path) -> None:
    content = read(file)
    if "available_node_types" in content:
        pools = {node["labels"]["pool"] for node in content["available_node_types"].values()}
    else:  # on premises labels are given where Ray is started
        pools = set(
            re.findall(
                r"pool=(\w+)", " ".join(content["head_start_ray_commands"] + content["worker_start_ray_commands"])
            )
        )
    assert pools == {"head", "prefill", "decode"}


@pytest.mark.parametrize("file", RAY_UP, ids=lambda file: file.name)
def test_a_container_has_room_for_the_store(file: Path) -> None:
    content = read(file)
    if "docker" in content:
        (size,) = re.findall(r"--shm-size=(\d+)gb", " ".join(content["docker"]["run_options"]))
        assert int(size) * 2**30 > load(CONFIGS / "gpu_mixed.yaml").config.store.bytes


def test_the_environment_of_nodes_has_every_flag_that_the_doctor_asks_for() -> None:
    assert set(FLAGS) <= set(environment(CONFIGS / "ray_up" / "node.env"))


@pytest.mark.parametrize("file", SERVE_FILES, ids=lambda file: file.name)
def test_a_serve_file_is_right(file: Path) -> None:
    config = load(file).config
    assert config.prefill.replicas + config.decode.replicas > 1


def test_the_manifest_holds_a_serve_file_and_the_nodes_environment(tmp_path: Path) -> None:
    spec = read(MANIFEST)["spec"]
    serve_file = tmp_path / "serve.yaml"
    serve_file.write_text(spec["serveConfigV2"])
    config = load(serve_file).config
    groups = spec["rayClusterConfig"]["workerGroupSpecs"]
    assert {group["labels"]["pool"] for group in groups} == {"prefill", "decode"}
    for group in groups:
        pool = config.prefill if group["groupName"] == "prefill" else config.decode
        assert (pool.label_selector, pool.replicas) == (group["labels"], group["replicas"])
        pod = group["template"]["spec"]
        told = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert told | {"RAY_AUTH_TOKEN": None} == {
            **environment(CONFIGS / "ray_up" / "node.env"),
            "RAY_AUTH_TOKEN": None,
        }
        assert pod["terminationGracePeriodSeconds"] > config.timeouts.drain_s
        assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "40Gi"}
        assert config.store.bytes < 40 * 2**30


@pytest.mark.parametrize("file", [*RAY_UP, CONFIGS.parent / "docs" / "deploy.md"], ids=lambda file: file.name)
def test_what_people_run_on_the_head_shows_the_token(file: Path) -> None:
    """Ray's tools send it only where they are told to, and a node with it in its home refuses who does not."""
    commands = re.findall(r"ray exec \S+ '(.*)'", file.read_text())
    assert len(commands) == 2
    assert [each for each in commands if "RAY_AUTH_MODE=token" not in each] == []
