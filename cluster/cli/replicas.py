"""What Serve says of an application, as values: each replica's state, and whether the whole is up or has failed.

Pure: takes the mapping that Serve's controller returns as its instance details.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Phase = Literal["starting", "running", "failed"]

_WORDS = {"STARTING": "loading", "RUNNING": "ready", "STOPPING": "stopping", "UPDATING": "loading"}


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica; `since_s` is a Unix time, None while Serve has not started it."""

    deployment: str
    replica_id: str
    state: str
    pid: int | None
    since_s: float | None


@dataclass(frozen=True, slots=True)
class ApplicationView:
    """The application at one moment. `error` is the first failing deployment's own message, else empty."""

    phase: Phase
    replicas: Sequence[ReplicaView]
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return asdict(self)


def view(details: Mapping[str, Any], application: str) -> ApplicationView:
    """The application's view; one that Serve does not know yet is starting."""
    found = details.get("applications", {}).get(application)
    if not found:
        return ApplicationView("starting", ())
    deployments = [found["deployments"][name] for name in sorted(found["deployments"])]
    replicas = [replica for deployment in deployments for replica in _replicas(deployment)]
    status = _text(found["status"])
    error = next((message for message in map(_startup_error, deployments) if message), "")
    if status == "DEPLOY_FAILED" or error:
        return ApplicationView("failed", replicas, error or str(found["message"]))
    return ApplicationView("running" if status == "RUNNING" else "starting", replicas)


def last_line(error: str) -> str:
    """The exception itself: the last line of a traceback that says something."""
    lines = [line.strip() for line in error.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def _replicas(deployment: Mapping[str, Any]) -> list[ReplicaView]:
    name = str(deployment["name"])
    live = [
        ReplicaView(name, str(one["replica_id"]), _word(one["state"]), one.get("pid"), one.get("start_time_s"))
        for one in deployment["replicas"]
    ]
    missing = int(deployment["target_num_replicas"]) - len(live)
    return live + [ReplicaView(name, "", "waiting", None, None) for _ in range(missing)]


def _startup_error(deployment: Mapping[str, Any]) -> str:
    """What a replica raised when it started; Serve keeps it in the deployment's message while it tries again."""
    message = str(deployment["message"])
    failed = "failed to start" in message or _text(deployment["status"]) == "DEPLOY_FAILED"
    return message if failed else ""


def _word(state: Any) -> str:
    text = _text(state)
    return _WORDS.get(text, text.lower().replace("_", " "))


def _text(value: Any) -> str:
    """Serve gives enumerations in some versions of a field and their values in others."""
    return str(getattr(value, "value", value))
