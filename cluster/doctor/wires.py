"""What is wrong with the certificates that nodes show each other. Pure, like `cluster.doctor.checks`."""

from collections.abc import Iterator

from cluster.doctor.checks import Finding, Patient

SOON_DAYS = 14
"""Renewals that are due so soon should have happened."""

_RENEW = "renew it: docs/deploy.md, Security of the wires; running processes use new files by themselves"


def certificates(patient: Patient) -> Iterator[Finding]:
    """Every node needs files that fit together, and that others believe."""
    shown = [(node.name, facts.tls) for node, facts in patient.known if facts.tls is not None]
    for name, tls in shown:
        if tls.error:
            yield Finding("error", name, tls.error, "put the three files there as docs/deploy.md says")
        elif tls.days_left < SOON_DAYS:
            what = f"the certificate (security.tls.certificate) expires in {tls.days_left:.1f} days"
            yield Finding("warning", name, what, _RENEW)
    authorities: dict[str, list[str]] = {}
    for name, tls in shown:
        if not tls.error:
            authorities.setdefault(tls.authority, []).append(name)
    if len(authorities) > 1:
        told = "; ".join(f"{digest[:12]} on {', '.join(names)}" for digest, names in authorities.items())
        yield Finding(
            "warning",
            "all nodes",
            f"security.tls.authority differs: {told}",
            "copy one file to all nodes, with both authorities in it while they are exchanged",
        )
