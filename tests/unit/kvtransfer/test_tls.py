"""What is said of files that cannot serve, and when files that changed are used."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvtransfer.tls import Identity, TlsFiles, TlsUnusable
from tests.support.authority import Authority, openssl


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


Spoil = Callable[[Authority, Path], TlsFiles]


def unreadable(ours: Authority, _: Path) -> TlsFiles:
    folder = Path(ours.issue().key).parent
    return replace(ours.issue(), key=str(folder))


def mixed_up(ours: Authority, _: Path) -> TlsFiles:
    good = ours.issue()
    return replace(good, certificate=good.key)


def damaged(ours: Authority, _: Path) -> TlsFiles:
    good = ours.issue()
    text = Path(good.certificate).read_text()
    Path(good.certificate).write_text(text[:80] + "!" + text[81:])
    return good


def encrypted(ours: Authority, at: Path) -> TlsFiles:
    good = ours.issue()
    openssl("pkey", "-in", good.key, "-aes256", "-passout", "pass:x", "-out", str(at / "locked.key"))
    return replace(good, key=str(at / "locked.key"))


SPOILT: dict[str, tuple[Spoil, str]] = {
    "missing": (
        lambda ours, at: replace(ours.issue(), key=str(at / "none")),
        r"security.tls.key: .*/none cannot be read: No such file",
    ),
    "unreadable": (unreadable, r"security.tls.key: .*/ours cannot be read: Is a directory"),
    "mixed up": (mixed_up, r"security.tls.certificate: .*node.key holds no such thing in PEM"),
    "damaged": (damaged, r"security.tls.key: .*node.key and .*node.pem \(security.tls.certificate\) cannot be loaded"),
    "another's key": (
        lambda ours, _: replace(ours.issue(), key=ours.issue("other").key),
        r"security.tls.key: .*other.key is not the key of .*node.pem \(security.tls.certificate\)",
    ),
    "an encrypted key": (encrypted, r"security.tls.key: .* encrypted; give one without a passphrase"),
    "expired": (
        lambda ours, _: ours.issue(days=-1),
        r"security.tls.certificate: .*node.pem would be refused: certificate has expired",
    ),
    "of another authority": (
        lambda ours, at: replace(ours.issue(), authority=Authority(at / "b").issue().authority),
        r"security.tls.certificate: .*node.pem would be refused: .* \(security.tls.authority: .*b/authority.pem\)",
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_cannot_serve_are_named_with_their_key_and_the_reason(
    how: str, authority: Authority, tmp_path: Path
) -> None:
    spoil, message = SPOILT[how]
    files = spoil(authority, tmp_path)
    with pytest.raises(TlsUnusable, match=message):
        Identity(files)


def test_files_that_changed_are_used_for_the_next_connection(authority: Authority) -> None:
    identity = Identity(authority.issue(days=10))
    before, expires_at = identity.accepting(), identity.expires_at
    assert identity.accepting() is before
    authority.issue(days=20)
    assert identity.accepting() is not before
    assert identity.expires_at > expires_at


def test_while_files_do_not_fit_together_the_former_stay_in_use(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.issue()
    identity = Identity(files)
    before = identity.dialling()
    certificate, key = Path(files.certificate).read_bytes(), Path(files.key).read_bytes()
    authority.issue("next")
    _replaced(files.certificate, Path(files.certificate).with_name("next.pem").read_bytes())
    assert identity.dialling() is before
    assert identity.dialling() is before
    assert len(caplog.messages) == 1
    assert "is not the key of" in caplog.messages[0]
    _replaced(files.key, Path(files.key).with_name("next.key").read_bytes())
    assert identity.dialling() is not before
    assert (certificate, key) != (Path(files.certificate).read_bytes(), Path(files.key).read_bytes())


def test_the_commands_of_the_documents_make_files_that_serve(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text()
    commands = [line for line in page.splitlines() if line.startswith("openssl ")]
    assert len(commands) == 3
    for command in commands:
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=30)
    names = ("node.pem", "node.key", "authority.pem")
    Identity(TlsFiles(*(str(tmp_path / name) for name in names)))


def _replaced(path: str, content: bytes) -> None:
    """As rotation does it: whole or not at all."""
    Path(f"{path}.new").write_bytes(content)
    os.replace(f"{path}.new", path)
