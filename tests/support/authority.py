"""Certificates for tests, made by the openssl command as docs/deploy.md does it."""

import subprocess
from pathlib import Path

from kvtransfer.tls import TlsFiles

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")


class Authority:
    """Of one cluster; its files, and those of nodes, are in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        subject = ("-subj", f"/CN=authority {folder.name}", "-days", "30")
        openssl("req", "-x509", *NEW_KEY, *subject, "-keyout", str(self._key), "-out", str(self.certificate))

    def issue(self, name: str = "node", days: int = 30) -> TlsFiles:
        """A node's files, written over those of the same name. Already expired where `days` is negative."""
        key, request, certificate = (self._folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        authority = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-days", str(days))
        openssl("x509", "-req", "-in", str(request), *authority, "-out", str(certificate))
        return TlsFiles(str(certificate), str(key), str(self.certificate))


def openssl(*arguments: str) -> None:
    """Run it. Raises `CalledProcessError`."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)
