"""`baton doctor` on a cluster of two nodes: every node answers, and faults of the whole are told."""

import pytest

from cluster.doctor.checks import OF_A_CLUSTER, Patient, examine
from cluster.doctor.facts import Question
from configs.load import load
from configs.overrides import parse
from tests.support.serving import CONFIGS, TestCluster

pytestmark = pytest.mark.ray


def test_every_node_is_asked_and_what_is_missing_is_told(cluster: TestCluster) -> None:
    from cluster.doctor.visit import is_served, visit

    changes = [
        "model.path=tiny",
        "store.bytes=1TiB",
        "decode.num_gpus=0",
        "decode.num_cpus=0",
        "decode.label_selector={}",
    ]
    deployment = load(CONFIGS / "gpu_mixed.yaml", [parse(change) for change in changes])
    nodes = visit(Question(deployment.config.model.path, deployment.http.host, deployment.http.port))
    assert [node.is_head for node in nodes] == [True, False]
    assert {node.labels["node"] for node in nodes} == {"a", "b"}
    assert all(node.facts is not None and node.facts.model_error == "" for node in nodes)
    assert all(abs(node.skew_s) < 1.0 for node in nodes)
    found = examine(Patient(deployment, nodes, is_served()), OF_A_CLUSTER)
    errors = sorted((finding.where, finding.what[:21]) for finding in found if finding.severity == "error")
    full = sorted((node.name, "/dev/shm holds ") for node in nodes)
    assert [(where, what[:15]) for where, what in errors if where != "prefill pool"] == full
    assert errors[-1] == ("prefill pool", "2 replicas asked for,")
