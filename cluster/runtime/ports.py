"""Whether an address can be listened on, and if not, who does."""

import errno
import socket


class PortTaken(Exception):
    """The address is in use. Names the holder where the system tells."""


def require_free(host: str, port: int) -> None:
    """Raise `PortTaken` where something listens on the address already, before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            raise PortTaken(f"{host}:{port} needs privileges; choose a port above 1023 with --port") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortTaken(f"cannot listen on {host}:{port}: {error.strerror}") from None
            raise PortTaken(f"{host}:{port} is in use{_holder(port)}; end it or choose another with --port") from None


def _holder(port: int) -> str:
    """` by name (process 123)`, or nothing where the system does not tell."""
    import psutil

    for connection in psutil.net_connections("inet"):
        if connection.status == "LISTEN" and connection.laddr and connection.laddr.port == port and connection.pid:
            try:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
            except psutil.Error:
                return f" by process {connection.pid}"
    return ""
