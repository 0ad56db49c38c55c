"""What a worker tells Ray Serve's autoscaling of itself, and what is read from that: numbers by name."""

from collections.abc import Mapping

from cluster.dataplane.frames import Load, WorkerInfo
from cluster.pools.member import Member
from routing.fleet import Replica, ReplicaLoad, Role

Report = Mapping[str, float]

PREFILLS, READY, KV_TOKENS = "prefills", "ready", "kv_tokens"
RUNNING, WAITING, HELD, QUEUED, KV_USAGE = "running", "waiting", "held", "queued_prefill_tokens", "kv_usage"
NAMES = (PREFILLS, READY, KV_TOKENS, RUNNING, WAITING, HELD, QUEUED, KV_USAGE)


def report(worker: WorkerInfo, load: Load) -> dict[str, float]:
    """What one worker says."""
    return {
        PREFILLS: float(worker.role == "prefill"),
        READY: float(load.healthy and not load.draining),
        KV_TOKENS: float(worker.kv_blocks * worker.block_size_tokens),
        RUNNING: float(load.running),
        WAITING: float(load.waiting),
        HELD: float(load.held),
        QUEUED: float(load.queued_prefill_tokens),
        KV_USAGE: load.kv_usage,
    }


def member_of(replica_id: str, home: Role, said: Report) -> Member:
    """The worker that said this; where its blocks are and who may exchange them is not told."""
    load = ReplicaLoad(
        running=int(said[RUNNING]),
        waiting=int(said[WAITING]),
        held=int(said[HELD]),
        queued_prefill_tokens=int(said[QUEUED]),
        kv_usage=said[KV_USAGE],
    )
    role = Role.PREFILL if said[PREFILLS] else Role.DECODE
    replica = Replica(replica_id, role, "", "", 1, 1, int(said[KV_TOKENS]), bool(said[READY]), load)
    return Member(replica, home)
