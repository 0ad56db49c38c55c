"""Asks every node of a Ray cluster, by a task that Ray pins to it. The only file here that knows Ray."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.doctor.facts import Node, NodeFacts, Question
from cluster.doctor.gather import clock, gather

ANSWER_S = 60.0
"""A node that never ran our code has to start a worker process, and import transformers."""

CLOCK_ROUNDS = 3

HEAD = "node:__internal_head__"


def visit(question: Question) -> list[Node]:
    """All living nodes, the head first. This process is a driver of their Ray already."""
    living = {told["NodeID"]: _node(told) for told in ray.nodes() if told["Alive"]}
    asked = {node_id: _pinned(gather, node_id).remote(question) for node_id in living}
    end = time.monotonic() + ANSWER_S
    answered = {node_id: _answered(node, asked[node_id], end) for node_id, node in living.items()}
    timed = [_timed(node, node_id) for node_id, node in answered.items()]
    return sorted(timed, key=lambda node: (not node.is_head, node.name))


def is_served() -> bool:
    """Whether Serve runs in this Ray: then its proxies listen."""
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    actors: Sequence[Mapping[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    return any(a["namespace"] == SERVE_NAMESPACE and a["name"] == SERVE_CONTROLLER_NAME for a in actors)


def _node(told: Mapping[str, Any]) -> Node:
    resources: Mapping[str, float] = told["Resources"]
    return Node(
        f"{told['NodeManagerAddress']} ({told['NodeID'][:8]})",
        resources,
        told.get("Labels") or {},
        is_head=HEAD in resources,
    )


def _pinned(function: Callable[..., Any], node_id: str) -> Any:
    here = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=here)


def _answered(node: Node, task: Any, end: float) -> Node:
    try:
        facts: NodeFacts = ray.get(task, timeout=max(0.1, end - time.monotonic()))
    except GetTimeoutError:
        return replace(node, silence=f"nothing came within {ANSWER_S:.0f} s")
    except RayError as error:
        return replace(node, silence=str(error).strip().splitlines()[-1])
    return replace(node, facts=facts)


def _timed(node: Node, node_id: str) -> Node:
    """With how far its clock is off: the quickest of some round trips tells best."""
    best = node
    for _ in range(CLOCK_ROUNDS if node.facts is not None else 0):
        began = time.time()
        try:
            there: float = ray.get(_pinned(clock, node_id).remote(), timeout=ANSWER_S)
        except (GetTimeoutError, RayError):
            break  # the node left meanwhile
        ended = time.time()
        error_s = (ended - began) / 2
        if best is node or error_s < best.skew_error_s:
            best = replace(node, skew_s=there - (began + ended) / 2, skew_error_s=error_s)
    return best
