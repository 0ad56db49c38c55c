"""The environment of a private Ray instance; set before anything imports ray, and inherited by all its processes.

- Throughput flags: the gateway is reached directly, through HAProxy on Serve's port, never through Serve's own proxy.
- HAProxy's files and side ports are the run's own: by default two instances of one machine collide.
- `SPT_NOENV`: processes that set their title leave their environment readable, where the run's mark is.
- A token of the run's own guards Ray's ports: Ray listens on the machine's address even where loopback is asked for.
- HAProxy is started by a launcher of the run's own (`cluster.runtime.haproxy`).
- What a gateway that ends did not answer is asked of another, and streams that began before HAProxy started anew have
  as long as requests and drains have by default: two minutes after a redeploy it would cut them off.
- HAProxy's socket names are single letters because Ray puts a folder of 56 characters before them.
- The proxies are looked at every second and given up after three looks: by default an HAProxy that died is missed for
  half a minute. A slow machine gets more time to start them.
- A replica that is ill is killed: its streams have gone on elsewhere, and one that has been stopped would keep its
  accelerator for as long as streams may take to drain.
- Ray tells the driver of every worker process that dies and of every call to Serve's controller that this fails. The
  board says which replica is gone; the rest is in Ray's logs.
"""

import secrets
import socket

from cluster.runtime.folders import make_run_folder
from cluster.runtime.haproxy import BINARY, RETRY_ON, haproxy_launcher
from cluster.runtime.mark import VARIABLE, RunMark, current

SAID_BY_THE_BOARD = r"A worker died or was killed while executing|Task ServeController\.\w+ failed"


def serve_flags(mark: RunMark | None = None) -> dict[str, str]:
    """The variables of the run with this mark, by default the one this process drives. Makes the run's folder."""
    run = mark or current()
    folder = make_run_folder(run)
    config = folder / "haproxy.cfg"
    metrics_port, stats_port, fallback_port = free_ports(3)
    return {
        VARIABLE: str(run),
        "SPT_NOENV": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_DEDUP_LOGS_SKIP_REGEX": SAID_BY_THE_BOARD,
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback_port),
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "30",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
        "RAY_SERVE_HAPROXY_RETRY_ON": RETRY_ON,
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "660",
        BINARY: str(haproxy_launcher(folder, config)),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(config),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "a"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "m"),
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
