"""The rival's side of the router benchmark: Dynamo's `RadixTree` and `SelectionService` from its wheel.

Runs in `.peers/dynamo`. Its `RadixTree` takes events as JSON; its `SelectionService` subscribes to vLLM's events, which
are published here on sockets of this process.
"""

import asyncio
import json
import os
import random
import time
from typing import Any

import msgspec
import zmq
from dynamo._core import RadixTree, SelectionService

from tests.benchmarks import router_workload as workload
from tests.benchmarks.router_serve import Clock, resident_bytes, serve, settle

MODEL = "m"
FILL_DEADLINE_S = 120.0
PROBES = 50


class Dynamo:
    """The orders."""

    def prepare(self, workers: int, blocks: int) -> int:
        """Make the workload; how many sequences there are."""
        self.workers = workers
        self.stored = workload.sequences(workers, blocks)
        self.events = [self._stored(number) for number in range(len(self.stored))]
        self.removals = [self._removed(number) for number in range(len(self.stored))]
        settle()
        self.before_bytes = resident_bytes()
        self.tree = RadixTree()
        return len(self.stored)

    def _stored(self, number: int) -> bytes:
        blocks = self.stored[number].blocks
        hashed = [
            {"block_hash": block, "tokens_hash": local, "mm_extra_info": None}
            for block, local in zip(blocks.hashes, blocks.local, strict=True)
        ]
        return _event(number, {"stored": {"parent_hash": None, "blocks": hashed}})

    def _removed(self, number: int) -> bytes:
        hashes = self.stored[number].blocks.hashes[workload.PREFIX_BLOCKS :]
        return _event(number, {"removed": {"block_hashes": hashes}})

    def store(self, first: int, last: int) -> dict[str, float]:
        """Sequences are stored, from the event's bytes on; the time of each block."""
        clock = Clock.started()
        self._apply(self.events[first:last], first)
        return clock.per((last - first) * workload.SEQUENCE_BLOCKS)

    def remove(self, first: int, last: int) -> dict[str, float]:
        """Blocks of their own are removed, and stored again off the clock."""
        clock = Clock.started()
        self._apply(self.removals[first:last], first)
        timed = clock.per((last - first) * workload.OWN_BLOCKS)
        self._apply(self.events[first:last], first)
        return timed

    def _apply(self, events: list[bytes], first: int) -> None:
        for event, stored in zip(events, self.stored[first:], strict=False):
            self.tree.apply_event(stored.worker, event)
        self.tree.find_matches([1])  # waits for the events before it

    def memory(self) -> dict[str, float]:
        """What the tree took, by the process's resident size."""
        different = len({block for stored in self.stored for block in stored.blocks.hashes})
        return {"resident": (resident_bytes() - self.before_bytes) / different}

    def lookup(self, count: int, seed: int) -> list[float]:
        """Seconds of each lookup of 256 hashes, the depths of all workers included."""
        times: list[float] = []
        for blocks in list(workload.lookups(self.stored, count, seed)):
            start = time.perf_counter()
            _ = self.tree.find_matches(blocks.local).scores
            times.append(time.perf_counter() - start)
        return times

    # Decisions

    async def service(self, workers: int, blocks: int) -> dict[str, Any]:
        """A service that knows all workers' blocks; how many of some sequences it finds in full."""
        self.workers = workers
        self.stored = workload.sequences(workers, blocks)
        self.selection = SelectionService(indexer_threads=2)
        self.context = zmq.Context()
        publishers = [await self._worker(number) for number in range(workers)]
        await asyncio.sleep(2)  # its subscriptions have no acknowledgement
        self._publish(publishers)
        await self._wait_until_found(self.stored[-1])
        probes = random.Random(3).sample(self.stored, min(PROBES, len(self.stored)))
        found = [await self._found(probe) for probe in probes]
        settle()
        return {"found": sum(found), "probed": len(found)}

    async def _worker(self, number: int) -> "zmq.Socket[bytes]":
        publisher = self.context.socket(zmq.PUB)
        publisher.setsockopt(zmq.SNDHWM, 0)
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        await self.selection.upsert_worker(
            {
                "worker_id": number + 1,
                "model_name": MODEL,
                "endpoint": f"http://127.0.0.1:{number + 1}",
                "block_size": workload.BLOCK_TOKENS,
                "data_parallel_start_rank": 0,
                "data_parallel_size": 1,
                "max_num_batched_tokens": 8192,
                "kv_events_endpoints": {0: f"tcp://127.0.0.1:{port}"},
            }
        )
        return publisher

    def _publish(self, publishers: list["zmq.Socket[bytes]"]) -> None:
        numbers = [0] * len(publishers)
        for stored in self.stored:
            tokens, worker = stored.blocks.tokens.tolist(), stored.worker
            event = ["BlockStored", stored.blocks.hashes, None, tokens, workload.BLOCK_TOKENS, None, "GPU", None]
            batch = msgspec.msgpack.encode([time.time(), [event], 0])
            publishers[worker].send_multipart([b"kv-events", numbers[worker].to_bytes(8, "big"), batch])
            numbers[worker] += 1

    async def _found(self, stored: workload.Stored) -> bool:
        scores = await self.selection.overlap_scores({"model_name": MODEL, "token_ids": stored.blocks.tokens.tolist()})
        return any(
            score["worker_id"] == stored.worker + 1 and score["device_blocks"] == workload.SEQUENCE_BLOCKS
            for score in scores["workers"]
        )

    async def _wait_until_found(self, stored: workload.Stored) -> None:
        async with asyncio.timeout(FILL_DEADLINE_S):
            while not await self._found(stored):  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.05)

    async def cycle(self, tokens: int, count: int, seed: int) -> dict[str, list[float]]:
        """Seconds of each whole cycle: hash, look up, score, reserve, the prompt is computed, release."""
        times: list[float] = []
        for number, prompt in enumerate(list(workload.prompts(self.stored, tokens, count, seed))):
            name = f"{seed}-{tokens}-{number}"
            start = time.perf_counter()
            await self.selection.select_and_reserve({"selection_id": name, "model_name": MODEL, "token_ids": prompt})
            await self.selection.prefill_complete(name)
            await self.selection.free_reservation(name)
            times.append(time.perf_counter() - start)
        return {"cycle": times}

    def orders(self) -> dict[str, Any]:
        return {
            "prepare": self.prepare,
            "store": self.store,
            "remove": self.remove,
            "memory": self.memory,
            "lookup": self.lookup,
            "service": self.service,
            "cycle": self.cycle,
        }


def _event(number: int, data: dict[str, Any]) -> bytes:
    return json.dumps({"event_id": number, "dp_rank": 0, "data": data}).encode()


if __name__ == "__main__":
    asyncio.run(serve(Dynamo().orders()))
    os._exit(0)  # its threads do not end by themselves
