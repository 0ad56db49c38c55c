"""Every serve file is deployed, answers, and changes a running worker's `user_config` without restarting anybody.

What differs from the files: engines are simulated, the model and the stores are small, of many replicas there are two.
Nodes have the labels, and by their own account the GPUs, that the files ask for.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.runtime.mark import current
from tests.chaos.parts import Parts
from tests.support.serving import CONFIGS, TestCluster

pytestmark = [pytest.mark.ray, pytest.mark.alone, pytest.mark.timeout(300)]

MANIFEST = CONFIGS / "kuberay" / "ray_service.yaml"
FILES = {
    **{file.name: file.read_text() for file in sorted(CONFIGS.glob("*.yaml"))},
    MANIFEST.name: yaml.safe_load(MANIFEST.read_text())["spec"]["serveConfigV2"],
}
MOST_REPLICAS = 2
FINISH_S = 7.0


@pytest.fixture(scope="module")
def machines(cluster: TestCluster) -> Iterator[None]:
    """One for each pool."""
    joined = [cluster.join(pool, {"pool": pool}, num_gpus=16) for pool in ("prefill", "decode")]
    yield
    for machine in joined:
        machine.remove()


def small(text: str, tiny_model: str) -> dict[str, Any]:
    """The application of a serve file, with engines that this machine has room for."""
    (application,) = yaml.safe_load(text)["applications"]
    args = application["args"]
    args["model"] |= {"path": tiny_model, "served_name": "tiny", "max_model_len": 2048}
    for name in ("prefill", "decode"):
        pool = args[name]
        args[name] = {
            **pool,
            "replicas": min(pool["replicas"], MOST_REPLICAS),
            "engine": simulated(pool),
            "cores": None,
        }
    args["store"] |= {"bytes": "16MiB"}
    args["gateway"] |= {"replicas": 1}
    return dict(application)


def simulated(pool: dict[str, Any]) -> dict[str, Any]:
    block_size = pool["engine"].get("args", pool["engine"])["block_size"]
    return {"kind": "simulated", "block_size": block_size, "device_blocks": 512}


@pytest.mark.parametrize("name", FILES)
def test_a_serve_file_is_deployed_answers_and_changes_user_config_alone(
    cluster: TestCluster, machines: None, tiny_model: str, name: str
) -> None:
    # Serve reads its flags when it is imported: not before the cluster's fixture has set them.
    from cluster.cli.far_workers import FarWorkers

    application = small(FILES[name], tiny_model)
    with cluster.deploy(application) as served:
        answer = served.complete(list(range(300, 700)), temperature=0, max_tokens=4)
        assert answer["usage"]["completion_tokens"] == 4
        before = processes()
        told = [{"name": "DecodeWorker", "user_config": {"drain_finish_s": FINISH_S}}]
        cluster.redeploy({**application, "deployments": told})
        await_told(FarWorkers(), application["args"]["decode"]["replicas"])
        assert processes() == before
        assert served.complete(list(range(300, 700)), temperature=0, max_tokens=4)["choices"] == answer["choices"]


def processes() -> list[tuple[str, int]]:
    return [(part.kind, part.pid) for part in Parts(current()).of("gateway", "prefill", "decode", "store")]


def await_told(workers: Any, count: int, deadline_s: float = 30.0) -> None:
    """Return when so many workers have heard of the change."""
    end = time.monotonic() + deadline_s
    while sum(each.finish_s == FINISH_S for each in workers.views()) < count:
        assert time.monotonic() < end, "not all workers heard of it"
        time.sleep(0.2)
