"""Each planted fault is found, by name and with its fix; a cluster without any is found healthy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cluster.doctor.checks import OF_A_CLUSTER, Finding, Patient, examine
from cluster.doctor.facts import FLAGS, Node, NodeFacts
from configs.load import load
from configs.overrides import parse

MIXED = Path(__file__).parents[3] / "configs" / "gpu_mixed.yaml"
FACTS = NodeFacts(
    python="3.11.9",
    versions={"ray": "2.60.0", "vllm": "0.32.0"},
    flags=dict.fromkeys(FLAGS, "1"),
    shared_memory_bytes=64 * 2**30,
    open_files=65_536,
    port_taken=False,
)
HEAD = Node("head", {"CPU": 8.0}, {"pool": "head"}, FACTS, is_head=True)
PREFILL = Node("p", {"CPU": 48.0, "GPU": 4.0}, {"pool": "prefill"}, FACTS)
DECODE = Node("d", {"CPU": 48.0, "GPU": 4.0}, {"pool": "decode"}, FACTS)


def found(*nodes: Node, changes: tuple[str, ...] = (), is_served: bool = False) -> list[Finding]:
    """What is wrong with these nodes for the file of two kinds of machines."""
    deployment = load(MIXED, [parse(change) for change in changes])
    return examine(Patient(deployment, nodes, is_served), OF_A_CLUSTER)


def test_a_cluster_with_all_that_is_asked_for_is_healthy() -> None:
    assert found(HEAD, PREFILL, DECODE) == []


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: what differs on the decode node, and what is said of it."""

    change: Callable[[Node], Node]
    severity: str
    what: str
    fix: str


def facts(**changes: object) -> Callable[[Node], Node]:
    """The node with other facts."""
    return lambda node: replace(node, facts=replace(FACTS, **changes))


def with_resources(resources: Mapping[str, float]) -> Callable[[Node], Node]:
    """The node with other resources."""
    return lambda node: replace(node, resources=resources)


FAULTS = {
    "silent": Planted(
        lambda node: replace(node, facts=None, silence="No module named 'cluster'"), "error", "does not", "install"
    ),
    "vllm": Planted(
        facts(versions={"ray": "2.60.0", "vllm": "0.31.0"}),
        "error",
        "vllm differs: 0.31.0 on d; 0.32.0 on head, p",
        "install the same vllm everywhere",
    ),
    "python": Planted(facts(python="3.11.2"), "error", "python differs: 3.11.2 on d; 3.11.9 on head, p", "install"),
    "no vllm": Planted(facts(versions={"ray": "2.60.0"}), "error", "vllm differs: 0.32.0 on head, p; none on d", "in"),
    "flag": Planted(
        facts(flags={**FACTS.flags, FLAGS[1]: ""}), "error", f"{FLAGS[1]} differs: head: 1, p: 1, d: not set", "source"
    ),
    "GPUs": Planted(
        with_resources({"CPU": 48.0, "GPU": 3.0}),
        "error",
        "4 replicas asked for, 3 find room: each needs 4 CPU, 1 GPU labelled pool=decode",
        "start more nodes labelled pool=decode, or lower decode.replicas",
    ),
    "label": Planted(
        lambda node: replace(node, labels={"pool": "dekode"}), "error", "4 replicas asked for, 0 find room", "start"
    ),
    "shared memory": Planted(
        facts(shared_memory_bytes=16 * 2**30), "error", "/dev/shm holds 16.0 GiB; store.bytes and Ray need 32.9", "low"
    ),
    "model": Planted(facts(model_error="not a folder"), "error", "model Qwen/Qwen3-8B cannot be opened: not a", "put"),
    "port": Planted(facts(port_taken=True), "error", "port 8000 is taken", "end what listens there"),
    "disk": Planted(facts(disk_error="Permission denied"), "error", "store.disk.path: Permission denied", "make the"),
    "files": Planted(facts(open_files=1024), "warning", "a process may open 1024 files", "`ulimit -n 65536`"),
    "clock": Planted(
        lambda node: replace(node, skew_s=-30.0, skew_error_s=0.1), "warning", "its clock is 30.0 s behind", "run a"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_its_fix(name: str) -> None:
    planted = FAULTS[name]
    findings = [f for f in found(HEAD, PREFILL, planted.change(DECODE)) if f.what.startswith(planted.what)]
    assert [finding.severity for finding in findings] == [planted.severity]
    assert findings[0].fix.startswith(planted.fix)


def test_a_flag_that_no_node_has_is_a_warning() -> None:
    bare = replace(FACTS, flags={**FACTS.flags, FLAGS[2]: ""})
    nodes = [replace(node, facts=bare) for node in (HEAD, PREFILL, DECODE)]
    assert [(f.severity, f.where, f.what) for f in found(*nodes)] == [
        ("warning", "head, p, d", f"{FLAGS[2]} is not set")
    ]


def test_our_own_proxies_may_hold_the_port() -> None:
    taken = replace(HEAD, facts=replace(FACTS, port_taken=True))
    assert found(taken, PREFILL, DECODE, is_served=True) == []


def test_the_head_needs_no_shared_memory_for_a_store_that_is_elsewhere() -> None:
    small = replace(HEAD, facts=replace(FACTS, shared_memory_bytes=2**30))
    assert found(small, PREFILL, DECODE) == []


def test_a_clock_is_not_blamed_for_a_slow_answer() -> None:
    assert found(HEAD, PREFILL, replace(DECODE, skew_s=3.0, skew_error_s=2.0)) == []


def test_pools_share_a_node_only_as_far_as_it_goes() -> None:
    both = Node("both", {"CPU": 48.0, "GPU": 4.0}, {}, FACTS)
    anywhere = ("prefill.label_selector={}", "decode.label_selector={}")
    assert [f.where for f in found(HEAD, both, changes=anywhere)] == ["decode pool"]
    assert found(HEAD, both, changes=(*anywhere, "decode.replicas=2")) == []


@pytest.mark.parametrize(
    ("selector", "places"), [("!prefill", 4), ("in(decode, spare)", 4), ("!in(decode, spare)", 0), ("spare", 0)]
)
def test_selectors_are_rays(selector: str, places: int) -> None:
    changes = ("prefill.replicas=0", f"decode.label_selector.pool='{selector}'")
    rooms = [f.what for f in found(DECODE, changes=changes) if f.where == "decode pool"]
    assert rooms == (
        [] if places == 4 else [f"4 replicas asked for, 0 find room: each needs 4 CPU, 1 GPU labelled pool={selector}"]
    )


def test_gateways_need_room_too() -> None:
    (only,) = found(HEAD, PREFILL, DECODE, changes=("gateway.label_selector.pool=haed",))
    assert (only.where, only.what) == (
        "gateway pool",
        "2 replicas asked for, 0 find room: each needs 2 CPU labelled pool=haed",
    )
