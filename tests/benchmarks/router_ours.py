"""Our side of the router benchmark: `BlockIndex` alone, and `KvAware` with its ledger over it."""

import asyncio
import random
import time
from typing import Any

from cluster.dataplane.frames import KvEvents, encode, from_worker
from cluster.dataplane.wire_keys import pack_keys, unpack_keys
from routing.block_keys import PromptKeys, extend, root
from routing.fleet import Fleet, Replica, ReplicaLoad, Role
from routing.index import Tier
from routing.index_blocks import BlockIndex
from routing.kv_aware import KvAware, KvAwareSettings
from routing.ledger import Ledger
from routing.output_lengths import OutputLengths
from routing.profile import Profile
from routing.rates import Rates
from routing.router import RouteRequest
from tests.benchmarks import router_workload as workload
from tests.benchmarks.router_serve import Clock, resident_bytes, serve, settle

LENGTH_PREFIX = 4
NODE_WORKERS = 8
MAX_TOKENS = 256

# The rates do not matter to how long a decision takes; these are of an 8B model on one large GPU.
PROFILE = Profile(
    prefill_step_s=0.01,
    prefill_token_s=0.0001,
    prefill_attention_s=1e-9,
    chunk_tokens=2048,
    decode_step_s=0.008,
    decode_request_s=0.0001,
    decode_context_token_s=1e-8,
    max_running=256,
    kv_bytes_per_token=131_072,
    host_bytes_per_s=20e9,
    host_latency_s=0.001,
    remote_bytes_per_s=10e9,
    remote_latency_s=0.002,
)


class Ours:
    """The orders. Workers are named by their number; every other one is for prefill."""

    def prepare(self, workers: int, blocks: int) -> int:
        """Make the workload; how many sequences there are."""
        self.workers = workers
        self.stored = workload.sequences(workers, blocks)
        self.keys = [extend(root(None, None), s.blocks.tokens, workload.BLOCK_TOKENS) for s in self.stored]
        self.frames = [encode(KvEvents(1, "device", False, pack_keys(keys), b""))[LENGTH_PREFIX:] for keys in self.keys]
        self.removals = [
            encode(KvEvents(1, "device", False, b"", pack_keys(keys[workload.PREFIX_BLOCKS :])))[LENGTH_PREFIX:]
            for keys in self.keys
        ]
        self.index = BlockIndex(budget_bytes=2**30)
        for worker in range(workers):
            self.index.place(str(worker), str(worker // NODE_WORKERS))
            self.index.snapshot(str(worker), Tier.DEVICE, [])
        self.router()
        settle()
        self.before_bytes = resident_bytes()
        return len(self.stored)

    def store(self, first: int, last: int) -> dict[str, float]:
        """Sequences are stored; the time of each block, and with the decoding of the wire's bytes."""
        return self._timed(self.frames[first:last], first, workload.SEQUENCE_BLOCKS)

    def remove(self, first: int, last: int) -> dict[str, float]:
        """Blocks of their own are removed, and stored again off the clock."""
        timed = self._timed(self.removals[first:last], first, workload.OWN_BLOCKS)
        self._timed(self.frames[first:last], first, workload.SEQUENCE_BLOCKS)
        return timed

    def _timed(self, frames: list[bytes], first: int, blocks: int) -> dict[str, float]:
        whole = Clock.started()
        events = [from_worker.decode(frame) for frame in frames]
        applying = Clock.started()
        for event, stored in zip(events, self.stored[first:], strict=False):
            came, went = unpack_keys(event.stored), unpack_keys(event.removed)
            self.index.apply(str(stored.worker), Tier.DEVICE, came, went)
        count = len(frames) * blocks
        return {**applying.per(count), **{f"wire_{clock}": us for clock, us in whole.per(count).items()}}

    def memory(self) -> dict[str, float]:
        """What the index took, by the process's resident size and by its own account."""
        statistics = self.index.statistics()
        resident = resident_bytes() - self.before_bytes
        return {"resident": resident / statistics.keys, "accounted": statistics.bytes / statistics.keys}

    def lookup(self, count: int, seed: int) -> list[float]:
        """Seconds of each lookup of 256 keys, the depths of all workers included."""
        prompts = [
            PromptKeys(blocks.tokens).at(workload.BLOCK_TOKENS) for blocks in workload.lookups(self.stored, count, seed)
        ]
        times: list[float] = []
        for keys in prompts:
            start = time.perf_counter()
            self.index.longest_prefix(keys, 0.0)
            times.append(time.perf_counter() - start)
        return times

    # Decisions

    def router(self) -> None:
        """A fleet of prefill and decode workers, idle, and a router that knows the index."""
        self.ledger = Ledger(self.index)
        rates, lengths = Rates(PROFILE), OutputLengths()
        self.route = KvAware(KvAwareSettings(), self.index, self.ledger, rates, lengths).route
        replicas = [_replica(worker) for worker in range(self.workers)]
        self.fleet = Fleet({replica.replica_id: replica for replica in replicas})
        self.rng = random.Random(1)

    def cycle(self, tokens: int, count: int, seed: int) -> dict[str, list[float]]:
        """Seconds of each whole cycle: hash, look up, score, reserve, the prompt is computed, release; and of parts."""
        parts: dict[str, list[float]] = {"cycle": [], "hash": [], "route": [], "ledger": []}
        for number, prompt in enumerate(list(workload.prompts(self.stored, tokens, count, seed))):
            start = time.perf_counter()
            keys = PromptKeys(prompt)
            keys.at(workload.BLOCK_TOKENS)
            hashed = time.perf_counter()
            request = RouteRequest(f"{seed}-{number}", tokens, MAX_TOKENS, keys=keys)
            decision = self.route(request, self.fleet, start, self.rng)
            routed = time.perf_counter()
            lease = self.ledger.reserve(decision, request, start)
            self.ledger.prefill_done(lease, start)
            self.ledger.release(lease, start)
            end = time.perf_counter()
            parts["cycle"].append(end - start)
            parts["hash"].append(hashed - start)
            parts["route"].append(routed - hashed)
            parts["ledger"].append(end - routed)
        return parts

    def orders(self) -> dict[str, Any]:
        return {
            "prepare": self.prepare,
            "store": self.store,
            "remove": self.remove,
            "memory": self.memory,
            "lookup": self.lookup,
            "cycle": self.cycle,
        }


def _replica(worker: int) -> Replica:
    return Replica(
        replica_id=str(worker),
        role=Role.DECODE if worker % 2 else Role.PREFILL,
        node_id=str(worker // NODE_WORKERS),
        kv_fingerprint="f",
        block_size_tokens=workload.BLOCK_TOKENS,
        max_model_len=131_072,
        kv_blocks=1_000_000,
        load=ReplicaLoad(),
    )


if __name__ == "__main__":
    asyncio.run(serve(Ours().orders()))
