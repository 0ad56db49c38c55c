"""What a node is like, as far as a deployment may depend on it. Pure values: gathered there, judged elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvtransfer.tls import TlsFiles

PACKAGES = ("baton-serve", "ray", "torch", "vllm", "msgpack", "numpy")
"""Distributions that have to be of one version on all nodes. vLLM's CPU build counts as vLLM."""

FLAGS = (
    "RAY_AUTH_MODE",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED",
    "RAY_SERVE_ENABLE_HA_PROXY",
    "RAY_SERVE_HAPROXY_RETRY_ON",
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S",
)
"""Variables that Serve reads where a replica or a proxy runs: configs/ray_up/node.env."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every node: whether it can open the model, bind the port, write the folder, and be believed."""

    model: str
    host: str
    port: int
    disk: str | None = None
    tls: TlsFiles | None = None


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """A node's files of `security.tls`: why they cannot serve, else how long they do and what the authority is."""

    error: str = ""
    days_left: float = 0.0
    authority: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node. `model_error` and `disk_error` say why it cannot open or write what was asked; "" when it can.

    `port_taken` is whether somebody listens on the service's port.
    """

    python: str
    versions: Mapping[str, str]
    flags: Mapping[str, str]
    shared_memory_bytes: int
    open_files: int
    port_taken: bool
    model_error: str = ""
    disk_error: str = ""
    tls: TlsFacts | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster. Without `facts` it did not answer, for the reason in `silence`.

    `skew_s` is by how much its clock is ahead of the asker's, known to within `skew_error_s`.
    """

    name: str
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    facts: NodeFacts | None = None
    silence: str = ""
    skew_s: float = 0.0
    skew_error_s: float = 0.0
    is_head: bool = False
