"""Every target: which process starts it, what it is, where its completions are."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmarks.targets import dynamo

REFERENCE = "vllm-app"
PACKAGE = "tests.benchmarks.targets"


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """`module` is run with `--model --port --step-s` and announces the target by its name.

    Targets of one module share a process. `missing` says why a target cannot be started, or nothing. `validates`:
    it tokenises the prompt and reports usage, so that it can be checked.
    """

    name: str
    about: str
    module: str
    path: str = "/v1/completions"
    validates: bool = True
    missing: Callable[[], str] = _nothing


def _dynamo_missing() -> str:
    return "" if dynamo.installed() else "not installed (make bench-peers)"


TARGETS = (
    TargetKind(REFERENCE, "vLLM's own API app with the fake engine in the same process", f"{PACKAGE}.vllm_app"),
    TargetKind("baton-app", "our gateway in plain uvicorn, fake workers in another process", f"{PACKAGE}.gateway_app"),
    TargetKind("baton-serve", "our gateway as deployed in Ray Serve, on its own port", f"{PACKAGE}.serve_targets"),
    TargetKind("baton-haproxy", "the same gateway through Serve's HAProxy", f"{PACKAGE}.serve_targets"),
    TargetKind(
        "serve-handle",
        "tokens through a Serve handle to a FastAPI ingress; neither tokenises nor validates",
        f"{PACKAGE}.serve_targets",
        path="/handle/v1/completions",
        validates=False,
    ),
    TargetKind(
        "dynamo",
        "Dynamo's frontend (Rust, many threads), KV router, mock prefill and decode workers",
        f"{PACKAGE}.dynamo",
        missing=_dynamo_missing,
    ),
)
