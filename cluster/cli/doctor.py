"""`baton doctor`: whether a cluster, or this machine, can run what a file asks for."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cluster.doctor.checks import Patient
    from cluster.doctor.facts import Node, Question
    from configs.load import Deployment
    from configs.schema import BatonConfig

File = Annotated[Path, typer.Argument(help="the serve file that is to be deployed", metavar="CONFIG")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="change one key of the file", metavar="KEY.PATH=VALUE")]
Address = Annotated[str | None, typer.Option(help="look at every node of this Ray cluster; default: at this machine")]


def doctor(file: File, changes: Sets = None, address: Address = None) -> None:
    """Look for what would keep CONFIG from working: room for every replica, GPUs, shared memory, the model, versions,
    flags, the port, clocks, certificates. Starts nothing. Exit code 1 when there is an error.
    """
    from cluster.doctor.checks import OF_A_CLUSTER, OF_A_MACHINE, examine
    from cluster.doctor.wires import certificates
    from configs.load import load
    from configs.overrides import parse

    patient = _patient(load(file, [parse(change) for change in changes or []]), address)
    for node in patient.nodes:
        print(f"{'ok' if node.facts is not None else '??':3} {node.name}: {_described(node)}")
    findings = examine(patient, (*(OF_A_MACHINE if address is None else OF_A_CLUSTER), certificates))
    for finding in findings:
        print(f"{finding.severity}: {finding.where}: {finding.what}\n    fix: {finding.fix}")
    errors = sum(finding.severity == "error" for finding in findings)
    print(f"{len(patient.nodes)} nodes, {errors} errors, {len(findings) - errors} warnings")
    if errors:
        raise typer.Exit(1)


def _patient(deployment: "Deployment", address: str | None) -> "Patient":
    from cluster.doctor.checks import Patient
    from cluster.doctor.facts import Question
    from cluster.security import tls_files

    config = deployment.config
    disk = config.store.disk.path if config.store.disk is not None else None
    files = tls_files(config.security)
    question = Question(config.model.path, deployment.http.host, deployment.http.port, disk, files)
    if address is None:
        return Patient(deployment, [_this_machine(question, config)])
    return Patient(deployment, *_cluster(address, question))


def _this_machine(question: "Question", config: "BatonConfig") -> "Node":
    """As `baton serve` would have it: its Ray shares out the CPUs there are."""
    from cluster.doctor.facts import Node
    from cluster.doctor.gather import gather, gpus
    from cluster.runtime.instance import required_cpus

    cpus = max(required_cpus(config), os.cpu_count() or 1)
    return Node("this machine", {"CPU": cpus, "GPU": gpus()}, {}, gather(question), is_head=True)


def _cluster(address: str, question: "Question") -> "tuple[Sequence[Node], bool]":
    from cluster.runtime.ticket import Ticket

    Ticket(address).join()
    from cluster.doctor.visit import is_served, visit

    return visit(question), is_served()


def _described(node: "Node") -> str:
    gpus = node.resources.get("GPU", 0)
    labels = " ".join(f"{k}={v}" for k, v in node.labels.items() if not k.startswith("ray.io/"))
    facts = node.facts
    told = f"{node.resources.get('CPU', 0):g} CPU, {gpus:g} GPU {labels}".strip()
    if facts is None:
        return told
    memory_gib = facts.shared_memory_bytes / 2**30
    return f"{told}, {memory_gib:.1f} GiB of shared memory, vLLM {facts.versions.get('vllm', 'not installed')}"
