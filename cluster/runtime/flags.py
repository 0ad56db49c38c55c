"""The environment of a private Ray instance; set before anything imports ray, and inherited by all its processes.

- Throughput flags: the gateway is reached directly, through HAProxy on Serve's port, never through Serve's own proxy.
- HAProxy's files and side ports are the run's own: by default two instances of one machine collide.
- `SPT_NOENV`: processes that set their title leave their environment readable, where the run's mark is.
- Authentication is off because nothing of the instance listens on anything but the loopback address.
"""

import socket

from cluster.runtime.folders import make_run_folder
from cluster.runtime.mark import VARIABLE, RunMark, current


def serve_flags(mark: RunMark | None = None) -> dict[str, str]:
    """The variables of the run with this mark, by default the one this process drives. Makes the run's folder."""
    run = mark or current()
    haproxy = make_run_folder(run) / "haproxy"
    metrics_port, stats_port = free_ports(2)
    return {
        VARIABLE: str(run),
        "SPT_NOENV": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(haproxy / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(haproxy / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(haproxy),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(haproxy / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(haproxy / "metrics.sock"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    }


def free_ports(count: int) -> list[int]:
    """Different TCP ports on the loopback address that nobody listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
