"""What is wrong with a cluster for a deployment, and how to mend it. Pure: facts of nodes in, findings out.

Each check is a function of the whole patient. `OF_A_CLUSTER` and `OF_A_MACHINE` say which are made, in the order in
which people read them: `baton serve` sets its Ray's flags by itself, and one machine differs from no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cluster.doctor.facts import FLAGS, Node, NodeFacts
from configs.load import Deployment
from configs.schema import BatonConfig, PoolConfig

Severity = Literal["error", "warning"]

OPEN_FILES = 8192
"""A gateway holds a socket for each client and each worker."""

SKEW_S = 2.0
"""Nothing is decided by comparing the clocks of two nodes, but logs and traces are read side by side."""

OBJECT_STORE_BYTES = 1_000_000_000
"""Of Ray, in the same shared memory: `--object-store-memory` of configs/ray_up."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. An error keeps the deployment from working, a warning makes it slow or hard to run."""

    severity: Severity
    where: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at. `is_served` when this Ray serves already: then its own proxies hold the port."""

    deployment: Deployment
    nodes: Sequence[Node]
    is_served: bool = False

    @property
    def config(self) -> BatonConfig:
        return self.deployment.config

    @property
    def known(self) -> list[tuple[Node, NodeFacts]]:
        """The nodes that answered."""
        return [(node, node.facts) for node in self.nodes if node.facts is not None]

    def hosts(self, pool: PoolConfig) -> list[tuple[Node, NodeFacts]]:
        """Those of the nodes that answered where a replica of the pool may be."""
        return [(node, facts) for node, facts in self.known if _selected(node, pool) and _fit(node.resources, pool) > 0]

    @property
    def worker_hosts(self) -> list[tuple[Node, NodeFacts]]:
        """Where any worker may be."""
        both = [*self.hosts(self.config.prefill), *self.hosts(self.config.decode)]
        return list({node.name: (node, facts) for node, facts in both}.values())


Check = Callable[[Patient], Iterator[Finding]]


def examine(patient: Patient, checks: Sequence[Check]) -> list[Finding]:
    """Everything that is wrong."""
    return [finding for check in checks for finding in check(patient)]


def silence(patient: Patient) -> Iterator[Finding]:
    """A node that does not run our code."""
    for node in patient.nodes:
        if node.facts is None:
            yield Finding(
                "error",
                node.name,
                f"does not answer: {node.silence}",
                "install Baton there, the same as here: see setup_commands in configs/ray_up",
            )


def versions(patient: Patient) -> Iterator[Finding]:
    """Different versions do not understand each other, or make other KV blocks."""
    names = sorted({"python", *(name for _, facts in patient.known for name in facts.versions)})
    for name in names:
        found: dict[str, list[str]] = {}
        for node, facts in patient.known:
            found.setdefault(_version(facts, name), []).append(node.name)
        if len(found) > 1:
            told = "; ".join(f"{version} on {', '.join(nodes)}" for version, nodes in sorted(found.items()))
            yield Finding("error", "all nodes", f"{name} differs: {told}", f"install the same {name} everywhere")


def flags(patient: Patient) -> Iterator[Finding]:
    """Serve reads its flags on each node: one that lacks them proxies slowly, or not at all."""
    for name in FLAGS:
        found = {node.name: facts.flags.get(name, "") for node, facts in patient.known}
        lacking = [node for node, value in found.items() if not value]
        if len(set(found.values())) > 1:
            told = ", ".join(f"{node}: {value or 'not set'}" for node, value in found.items())
            yield Finding("error", "all nodes", f"{name} differs: {told}", _SET_FLAGS)
        elif lacking:
            yield Finding("warning", ", ".join(lacking), f"{name} is not set", _SET_FLAGS)


_SET_FLAGS = "source configs/ray_up/node.env before `ray start` on every node"


def room(patient: Patient) -> Iterator[Finding]:
    """Every replica needs a place: CPUs, GPUs, resources and labels, on one node."""
    left = {node.name: dict(node.resources) for node in patient.nodes}
    config = patient.config
    gateways = PoolConfig.model_validate(config.gateway.model_dump(include={"replicas", "num_cpus", "label_selector"}))
    for name, pool in (("prefill", config.prefill), ("decode", config.decode), ("gateway", gateways)):
        placed = 0
        for node in patient.nodes:
            if _selected(node, pool):
                placed += _place(left[node.name], pool, pool.replicas - placed)
        if placed < pool.replicas:
            yield Finding(
                "error",
                f"{name} pool",
                f"{pool.replicas} replicas asked for, {placed} find room: each needs {_needs(pool)}",
                f"start more nodes{_labelled(pool)}, or lower {name}.replicas; `ray status` shows what each node has",
            )


def shared_memory(patient: Patient) -> Iterator[Finding]:
    """The arena of a node's store is shared memory."""
    needed = int(patient.config.store.bytes) + OBJECT_STORE_BYTES
    for node, facts in patient.worker_hosts:
        if facts.shared_memory_bytes < needed:
            yield Finding(
                "error",
                node.name,
                f"/dev/shm holds {_gib(facts.shared_memory_bytes)}; store.bytes and Ray need {_gib(needed)}",
                "lower store.bytes, or enlarge it: `mount -o remount,size=…  /dev/shm`, docker's --shm-size, or "
                "a Memory emptyDir on Kubernetes",
            )


def model(patient: Patient) -> Iterator[Finding]:
    """Workers load the model, gateways its tokenizer."""
    path = patient.config.model.path
    for node, facts in patient.known:
        if facts.model_error:
            yield Finding(
                "error",
                node.name,
                f"model {path} cannot be opened: {facts.model_error}",
                "put the folder at the same path on every node, or name a hub model that nodes can reach (HF_TOKEN "
                "for one that is gated)",
            )


def port(patient: Patient) -> Iterator[Finding]:
    """Somebody else's listener takes the requests that are meant for us."""
    number = patient.deployment.http.port
    for node, facts in patient.known:
        if facts.port_taken and not patient.is_served:
            yield Finding(
                "error",
                node.name,
                f"port {number} is taken",
                f"end what listens there (`ss -ltnp 'sport = :{number}'`), or change http_options.port",
            )


def disk(patient: Patient) -> Iterator[Finding]:
    """The tier below the arena."""
    for node, facts in patient.worker_hosts:
        if facts.disk_error:
            yield Finding(
                "error", node.name, f"store.disk.path: {facts.disk_error}", "make the folder, writable for Ray's user"
            )


def open_files(patient: Patient) -> Iterator[Finding]:
    """Sockets are files."""
    for node, facts in patient.known:
        if facts.open_files < OPEN_FILES:
            yield Finding(
                "warning",
                node.name,
                f"a process may open {facts.open_files} files",
                "`ulimit -n 65536` before `ray start`",
            )


def clocks(patient: Patient) -> Iterator[Finding]:
    """Beyond what the question's own travel explains."""
    for node, _ in patient.known:
        if abs(node.skew_s) - node.skew_error_s > SKEW_S:
            direction = "ahead" if node.skew_s > 0 else "behind"
            yield Finding(
                "warning",
                node.name,
                f"its clock is {abs(node.skew_s):.1f} s {direction}",
                "run a time service there (chrony, systemd-timesyncd)",
            )


OF_A_MACHINE: Sequence[Check] = (room, shared_memory, model, port, disk, open_files)
OF_A_CLUSTER: Sequence[Check] = (silence, versions, flags, *OF_A_MACHINE, clocks)


def _version(facts: NodeFacts, name: str) -> str:
    return facts.python if name == "python" else facts.versions.get(name, "none")


def _selected(node: Node, pool: PoolConfig) -> bool:
    """Ray's selectors: a value, several as `in(a, b)`, `!value` or `!in(a, b)`."""
    return all(_matches(node.labels.get(key), wanted) for key, wanted in pool.label_selector.items())


def _matches(label: str | None, wanted: str) -> bool:
    if wanted.startswith("!"):
        return not _matches(label, wanted[1:])
    if wanted.startswith("in(") and wanted.endswith(")"):
        return label in [value.strip() for value in wanted[3:-1].split(",")]
    return label == wanted


def _asked(pool: PoolConfig) -> dict[str, float]:
    asked = {"CPU": pool.num_cpus, "GPU": pool.num_gpus, **pool.resources}
    return {name: amount for name, amount in asked.items() if amount > 0}


def _fit(resources: Mapping[str, float], pool: PoolConfig) -> int:
    """How many replicas these resources hold."""
    return min((int(resources.get(name, 0) // amount) for name, amount in _asked(pool).items()), default=4096)


def _place(left: dict[str, float], pool: PoolConfig, wanted: int) -> int:
    placed = min(wanted, _fit(left, pool))
    for name, amount in _asked(pool).items():
        left[name] = left.get(name, 0) - placed * amount
    return placed


def _needs(pool: PoolConfig) -> str:
    asked = ", ".join(f"{amount:g} {name}" for name, amount in _asked(pool).items()) or "nothing"
    return asked + _labelled(pool)


def _labelled(pool: PoolConfig) -> str:
    return f" labelled {', '.join(f'{k}={v}' for k, v in pool.label_selector.items())}" if pool.label_selector else ""


def _gib(amount: int) -> str:
    return f"{amount / 2**30:.1f} GiB"
