"""What Serve says of an application becomes replicas with a state, and a start that failed says why."""

from typing import Any

from cluster.cli.replicas import ApplicationView, ReplicaView, last_line, view


def details(status: str, *deployments: dict[str, Any]) -> dict[str, Any]:
    """Serve's instance details with one application called `baton`."""
    named = {deployment["name"]: deployment for deployment in deployments}
    return {"applications": {"baton": {"status": status, "message": "", "deployments": named}}}


def deployment(name: str, target: int, *replicas: dict[str, Any], message: str = "") -> dict[str, Any]:
    """One deployment with what the view looks at."""
    return {
        "name": name,
        "status": "UPDATING",
        "message": message,
        "target_num_replicas": target,
        "replicas": list(replicas),
    }


def test_an_application_serve_does_not_know_yet_is_starting() -> None:
    assert view({}, "baton") == ApplicationView("starting", ())


def test_replicas_that_are_not_there_yet_are_shown_waiting() -> None:
    one = {"replica_id": "a1", "state": "STARTING", "pid": 7, "start_time_s": 100.0}
    assert view(details("DEPLOYING", deployment("DecodeWorker", 2, one)), "baton") == ApplicationView(
        "starting",
        [
            ReplicaView("DecodeWorker", "a1", "loading", 7, 100.0),
            ReplicaView("DecodeWorker", "", "waiting", None, None),
        ],
    )


def test_a_running_application_has_ready_replicas() -> None:
    one = {"replica_id": "a1", "state": "RUNNING", "pid": 7, "start_time_s": 100.0}
    assert view(details("RUNNING", deployment("Gateway", 1, one)), "baton") == ApplicationView(
        "running", [ReplicaView("Gateway", "a1", "ready", 7, 100.0)]
    )


def test_the_first_replica_that_cannot_start_fails_the_start_with_its_own_error() -> None:
    message = "A replica failed to start with exception. Retrying. Error:\nTraceback\nValueError: no room for KV\n"
    seen = view(details("DEPLOYING", deployment("DecodeWorker", 0, message=message)), "baton")
    assert (seen.phase, seen.error) == ("failed", message)
    assert last_line(seen.error) == "ValueError: no room for KV"


def test_an_error_without_text_says_so() -> None:
    assert last_line("\n") == "no message"
