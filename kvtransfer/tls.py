"""Mutual TLS between nodes: who has a certificate of the cluster's own authority may connect.

TLS 1.3 only, and both sides show a certificate. Names and addresses in certificates are not looked at, so one
certificate may serve every node: the authority is the cluster's and vouches for nothing else. The cluster secret is
asked for on top. Whatever this process could not be reached with (expired, of another authority, another's key) is
found when the files are read: the two ends of an identity shake hands in memory. Files that change are read again for
the next connection; while they do not fit together, the former ones stay in use.
"""

import logging
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvtransfer.errors import KvTransferError
from kvtransfer.tls_socket import TlsSocket

logger = logging.getLogger(__name__)

HANDSHAKE_TURNS = 4
"""More than a handshake takes, of both sides."""

_PLAINTEXT = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "UNEXPECTED_MESSAGE"}


class TlsUnusable(KvTransferError):
    """The files cannot serve: says which key of the configuration, which file, and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: a certificate (with what is between it and the authority), its key, the authority's own."""

    certificate: str
    key: str
    authority: str


@dataclass(frozen=True, slots=True)
class _Contexts:
    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    expires_at: float


class Identity:
    """What a node shows, and whom it believes. Any thread may ask. Raises `TlsUnusable` when made of bad files."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamp = _stamp(files)
        self._contexts = _read(files)

    def accepting(self) -> ssl.SSLContext:
        """For the next connection that comes."""
        return self._newest().accepting

    def dialling(self) -> ssl.SSLContext:
        """For the next connection to another node."""
        return self._newest().dialling

    @property
    def expires_at(self) -> float:
        """When the certificate in use expires, in seconds since the epoch."""
        return self._newest().expires_at

    def _newest(self) -> _Contexts:
        with self._lock:
            stamp = _stamp(self._files)
            if stamp != self._stamp:
                self._stamp = stamp
                self._replace()
            return self._contexts

    def _replace(self) -> None:
        try:
            self._contexts = _read(self._files)
        except TlsUnusable as error:
            logger.error("the files of security.tls have changed and are not used: %s", error)
        else:
            logger.info("the files of security.tls have changed: new connections use them")

    def __repr__(self) -> str:
        return f"<Identity {self._files.certificate}>"


def reason(error: Exception) -> str:
    """Why a connection came to nothing, in words of the configuration."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    why = error.reason or str(error)
    if why in _PLAINTEXT:
        return "the peer does not speak TLS, which security.tls asks for"
    if why == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the peer shows no certificate"
    if "ALERT" in why:
        return f"the peer refuses this side's certificate: {why.partition('ALERT_')[2].lower().replace('_', ' ')}"
    return f"TLS failed: {why.lower().replace('_', ' ')}"


def _stamp(files: TlsFiles) -> Sequence[tuple[int, int, int] | None]:
    return [_file_stamp(Path(path)) for path in (files.certificate, files.key, files.authority)]


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(files: TlsFiles) -> _Contexts:
    """Raises `TlsUnusable`."""
    _look_at("certificate", files.certificate, "-----BEGIN CERTIFICATE-----")
    _look_at("key", files.key, "PRIVATE KEY-----")
    _look_at("authority", files.authority, "-----BEGIN CERTIFICATE-----")
    accepting = _context(ssl.PROTOCOL_TLS_SERVER, files)
    accepting.num_tickets = 0  # a session that is resumed would not be looked at again
    dialling = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    return _Contexts(accepting, dialling, _shake_hands(accepting, dialling, files))


def _look_at(key: str, path: str, mark: str) -> None:
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise TlsUnusable(f"security.tls.{key}: {path} cannot be read: {error.strerror}") from None
    if mark not in text:
        raise TlsUnusable(f"security.tls.{key}: {path} holds no such thing in PEM (`{mark}`)")


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(files.authority)
    except ssl.SSLError as error:
        raise TlsUnusable(f"security.tls.authority: {files.authority} is no certificate: {error.reason}") from None
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"is not the key of {files.certificate} (security.tls.certificate)"
        else:
            why = f"and {files.certificate} (security.tls.certificate) cannot be loaded: {error.reason or error}"
        raise TlsUnusable(f"security.tls.key: {files.key} {why}") from None
    return context


def _no_password() -> str:
    raise TlsUnusable("security.tls.key: the key is encrypted; give one without a passphrase")


def _shake_hands(accepting: ssl.SSLContext, dialling: ssl.SSLContext, files: TlsFiles) -> float:
    """As two nodes with these files would; when their certificate expires. Raises `TlsUnusable`."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    far = accepting.wrap_bio(inward, outward, server_side=True)
    near = dialling.wrap_bio(outward, inward)
    for side in (near, far) * HANDSHAKE_TURNS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            why = f"{error.verify_message} (security.tls.authority: {files.authority})"
            raise TlsUnusable(f"security.tls.certificate: {files.certificate} would be refused: {why}") from None
    shown = near.getpeercert()
    assert shown is not None, "verified"
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))
