"""The policy as Ray Serve asks it, with the contexts that Serve would give: both pools, from their workers' reports."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import autoscaling
from cluster.autoscaling import JointPolicy, autoscaling_config
from cluster.dataplane.frames import Load, WorkerInfo
from cluster.pools.reports import member_of, report
from configs.profiles import with_rates
from configs.schema import BatonConfig
from routing.fleet import ReplicaLoad, Role

HOME = {"PrefillWorker": "prefill", "DecodeWorker": "decode"}


@dataclass
class Asked:
    """Serve's controller: asks the policy once a second."""

    config: BatonConfig
    policy: JointPolicy = field(default_factory=JointPolicy)
    now: float = 0.0

    def answers(self, seconds: int, there: tuple[int, int], loads: dict[str, Load]) -> list[dict[str, int]]:
        found = []
        for _ in range(seconds):
            self.now += 1.0
            found.append(self.policy(self._contexts(there, loads))[0])
        return found

    def _contexts(self, there: tuple[int, int], loads: dict[str, Load]) -> dict[str, Any]:
        pools = {"PrefillWorker": self.config.prefill, "DecodeWorker": self.config.decode}
        found = {}
        for (name, pool), target in zip(pools.items(), there, strict=True):
            policy = SimpleNamespace(**autoscaling_config(pool, self.config)["policy"])  # type: ignore[arg-type]
            said = report(worker(HOME[name]), loads[name]).items()
            series = {metric: {f"{name}#1": [SimpleNamespace(value=value)]} for metric, value in said}
            found[name] = SimpleNamespace(
                deployment_name=name,
                target_num_replicas=target,
                raw_metrics=series,
                config=SimpleNamespace(policy=policy),
            )
        return found


def worker(role: str) -> WorkerInfo:
    return WorkerInfo(
        replica_id="a",
        role=role,  # type: ignore[arg-type]
        node_id="n",
        engine="simulated",
        store_address="",
        kv_fingerprint="kv",
        block_size_tokens=16,
        max_model_len=4096,
        epoch="e",
        kv_blocks=1024,
    )


def load(**values: Any) -> Load:
    nothing: dict[str, Any] = {"running": 0, "waiting": 0, "held": 0, "queued_prefill_tokens": 0, "kv_usage": 0.0}
    return Load(**nothing | values, healthy=True, draining=False)


IDLE = {"PrefillWorker": load(), "DecodeWorker": load()}
BUSY = {"PrefillWorker": load(queued_prefill_tokens=100_000), "DecodeWorker": load(running=60, kv_usage=0.9, waiting=9)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    engine = {"kind": "simulated"}
    pool = {"engine": engine, "max_replicas": 4}
    given = {
        "model": {"path": "m"},
        "prefill": pool,
        "decode": pool,
        "router": {"itl_target_s": 0.05},
        "pools": {"scale_up_after_s": 5, "scale_down_after_s": 30},
    }
    asked = Asked(with_rates(BatonConfig.model_validate(given)))
    monkeypatch.setattr(autoscaling.time, "monotonic", lambda: asked.now)
    return asked


def test_both_deployments_grow_and_shrink_together_and_each_change_is_remembered(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[str] = []
    monkeypatch.setattr(autoscaling, "remember", lambda why, _: remembered.append(why))
    up = asked.answers(7, (1, 1), BUSY)
    assert up[0] == {"PrefillWorker": 1, "DecodeWorker": 1}
    assert {"PrefillWorker": 4, "DecodeWorker": 2} in up
    down = asked.answers(100, (4, 2), IDLE)
    assert {"PrefillWorker": 1, "DecodeWorker": 1} in down
    said = [why.partition(":")[0] for why in remembered]
    assert (said[0], said[-1]) == ("1P1D to 4P2D started", "4P2D to 1P1D started")


def test_a_pool_that_serve_does_not_ask_for_yet_is_waited_for(asked: Asked) -> None:
    contexts = asked._contexts((1, 1), BUSY)
    assert asked.policy({"DecodeWorker": contexts["DecodeWorker"]}) == ({}, {})
    assert asked.policy({}) == ({}, {})


def test_a_report_arrives_as_it_was_made() -> None:
    said = report(worker("prefill"), load(running=3, waiting=2, held=1, queued_prefill_tokens=500, kv_usage=0.25))
    member = member_of("a", Role.DECODE, said)
    assert (member.role, member.is_lent, member.replica.ready) == (Role.PREFILL, True, True)
    assert member.replica.kv_blocks * member.replica.block_size_tokens == 16 * 1024
    assert member.replica.load == ReplicaLoad(3, 2, 1, 500, 0.25)
