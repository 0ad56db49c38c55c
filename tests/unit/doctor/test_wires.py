"""What is said of the certificates of nodes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cluster.doctor.checks import Finding, Patient, examine
from cluster.doctor.facts import Question, TlsFacts
from cluster.doctor.gather import gather
from cluster.doctor.wires import certificates
from configs.load import load
from tests.support.authority import Authority
from tests.support.serving import free_port
from tests.unit.doctor.test_checks import DECODE, FACTS, MIXED, PREFILL


def found(*shown: TlsFacts) -> Sequence[Finding]:
    nodes = [replace(node, facts=replace(FACTS, tls=tls)) for node, tls in zip((PREFILL, DECODE), shown, strict=True)]
    return examine(Patient(load(MIXED), nodes), [certificates])


GOOD = TlsFacts(days_left=100.0, authority="a" * 64)


def test_good_certificates_are_no_finding() -> None:
    assert found(GOOD, GOOD) == []


def test_each_fault_is_named_with_its_node() -> None:
    bad, late = TlsFacts("security.tls.key: /k cannot be read: No such file"), replace(GOOD, days_left=3.0)
    assert [(it.severity, it.where, it.what) for it in found(bad, late)] == [
        ("error", "p", "security.tls.key: /k cannot be read: No such file"),
        ("warning", "d", "the certificate (security.tls.certificate) expires in 3.0 days"),
    ]


def test_nodes_with_different_authorities_would_refuse_each_other() -> None:
    (finding,) = found(GOOD, replace(GOOD, authority="b" * 64))
    assert finding.what == "security.tls.authority differs: aaaaaaaaaaaa on p; bbbbbbbbbbbb on d"


def test_the_files_of_a_node_are_looked_at(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    question = Question("tiny", "127.0.0.1", free_port(), tls=authority.issue(days=30))
    good = gather(question).tls
    assert good is not None
    assert (good.error, round(good.days_left), len(good.authority)) == ("", 30, 64)
    authority.issue(days=-1)
    expired = gather(question).tls
    assert expired is not None
    assert "certificate has expired" in expired.error
