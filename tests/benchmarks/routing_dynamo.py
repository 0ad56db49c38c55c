"""NVIDIA Dynamo's offline replay, from `.peers/dynamo`: its own router over its own mocker, in virtual time.

The replay runs in Dynamo's environment, in a process of its own; `_REPLAY` is the program it gets. Capacity, block
size, timing model and trace are those of our simulation; its transfers cost nothing unless told otherwise.
"""

import json
import os
import subprocess
from dataclasses import asdict, dataclass

from tests.benchmarks.targets.dynamo import PYTHON

DEADLINE_S = 600.0

_REPLAY = """
import json, sys, time
from dynamo.replay import run_trace_replay
a = json.loads(sys.argv[1])
engine = {"num_gpu_blocks": a["blocks"], "block_size": a["block_size"]}
kind = dict(arrival_speedup_ratio=a["speed"], trace_block_size=512, sla_ttft_ms=a["ttft_ms"], sla_itl_ms=a["itl_ms"],
            router_mode=a["mode"], capture_per_request=a["per_request"])
if a["bytes_per_token"]:
    engine["kv_transfer_bytes_per_token"] = a["bytes_per_token"]
    engine["kv_transfer_bandwidth"] = a["transfer_bytes_per_s"] / 1e9
if a["prefill"]:
    roles = dict(prefill_engine_args={"engine": {**engine, "worker_type": "prefill"}},
                 decode_engine_args={"engine": {**engine, "worker_type": "decode"}},
                 num_prefill_workers=a["prefill"], num_decode_workers=a["decode"])
else:
    roles = dict(extra_engine_args={"engine": engine}, num_workers=a["decode"])
began, cpu_s = time.monotonic(), time.process_time()
report = run_trace_replay([a["trace"]], **kind, **roles)
wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu_s
workers = {}
for r in report.per_request if a["per_request"] else ():
    key = r["prefill_worker_idx"] if a["prefill"] else r["decode_worker_idx"]
    workers[str(key)] = workers.get(str(key), 0) + r["input_length"] - r["reused_input_tokens"]
json.dump({"summary": report.summary, "computed": workers, "wall_s": wall_s, "cpu_s": cpu_s}, sys.stdout)
"""


class ReplayFailed(RuntimeError):
    """Dynamo's replay did not end well; the message is the end of what it said."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One run. `mode` is "kv_router" or "round_robin"; without prefill workers the others do everything.

    Transfers cost nothing when a token has no bytes. Without `per_request` it keeps sums only.
    """

    trace: str
    mode: str
    prefill: int
    decode: int
    speed: float
    blocks: int
    block_size: int
    ttft_ms: float
    itl_ms: float
    bytes_per_token: int
    transfer_bytes_per_s: float
    per_request: bool = True


@dataclass(frozen=True, slots=True)
class Replayed:
    """Its figures, in our units. `imbalance` is of the prompt tokens each worker computed, 0 where it kept sums only.

    `wall_s` and `cpu_s` are of the replay itself, with reading the trace.
    """

    requests: int
    reuse: float
    ttft_mean_s: float
    ttft_p99_s: float
    itl_p99_s: float
    good: int
    imbalance: float
    wall_s: float
    cpu_s: float


def replay(order: Replay) -> Replayed:
    """Run it. Raises `ReplayFailed`."""
    environment = {**os.environ, "DYN_LOG": "error", "PYTHONPATH": ""}
    command = [str(PYTHON), "-c", _REPLAY, json.dumps(asdict(order))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment)
    if done.returncode:
        raise ReplayFailed(done.stderr[-1000:])
    said = json.loads(done.stdout[done.stdout.index('{"summary"') :])
    summary, computed = said["summary"], list(said["computed"].values())
    return Replayed(
        requests=summary["completed_requests"],
        reuse=summary["prefix_cache_reused_ratio"],
        ttft_mean_s=summary["mean_ttft_ms"] / 1000,
        ttft_p99_s=summary["p99_ttft_ms"] / 1000,
        itl_p99_s=summary["p99_itl_ms"] / 1000,
        good=summary["goodput_completed_requests"],
        imbalance=max(computed) * len(computed) / sum(computed) if computed else 0.0,
        wall_s=said["wall_s"],
        cpu_s=said["cpu_s"],
    )
