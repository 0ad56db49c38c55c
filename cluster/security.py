"""What this process shows other nodes: made of the configuration, where the files are."""

from configs.security import SecurityConfig
from kvtransfer.tls import Identity, TlsFiles


def tls_files(security: SecurityConfig) -> TlsFiles | None:
    """None: nodes speak in the clear."""
    return None if security.tls is None else TlsFiles(**security.tls.model_dump())


def tls_identity(security: SecurityConfig) -> Identity | None:
    """As `tls_files`, read. Raises `TlsUnusable`."""
    files = tls_files(security)
    return None if files is None else Identity(files)
