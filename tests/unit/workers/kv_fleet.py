"""A gateway's index fed by real workers over real sockets: simulated engines, stores in threads of their own.

What the engines and stores hold is known independently: the continuation of each prompt is computed without an engine,
and with it every block's hash and router key.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cluster.coordinator.workers import GenerationRequest, Leg
from cluster.dataplane.frames import WorkerInfo
from cluster.dataplane.pool import WorkerPool
from cluster.dataplane.stream import WorkerStream
from cluster.engines.simulated.engine import SimulatedEngine, kv_fingerprint
from cluster.engines.simulated.settings import SimulatedSettings, StoreAccess
from cluster.engines.simulated.tokens import block_hash, root_hash
from cluster.gateway.kv_index_feed import KvIndexFeed
from cluster.workers.store_link import StoreLink
from cluster.workers.worker import Worker, WorkerSettings
from kvtransfer.aclient import AsyncStoreClient
from routing.block_keys import extend, root
from routing.fleet import store_of
from routing.index import Tier
from routing.index_blocks import BlockIndex
from tests.support.store_thread import SECRET as STORE_SECRET
from tests.support.store_thread import StoreThread
from tests.unit.dataplane.peers import MODEL, SECRET, pool_settings
from tests.unit.engines.simulated.bench import reference, settings

BLOCK = 16
MODEL_LENGTH = 256
DEVICE_BLOCKS = 24
STORE_SLOTS = 32
TOKENS = 24
DEADLINE_S = 15.0


def engine_settings(model: Path, store: StoreAccess | None = None, decode_step_s: float = 0.0) -> SimulatedSettings:
    """A device of barely more than one longest request: it evicts all the time."""
    return settings(
        model,
        max_model_len=MODEL_LENGTH,
        block_size=BLOCK,
        device_blocks=DEVICE_BLOCKS,
        store=store,
        decode_step_s=decode_step_s,
    )


@dataclass(slots=True)
class Node:
    """One node: its store, and whatever runs on it."""

    node_id: str
    store: StoreThread
    members: "dict[str, Member]" = field(default_factory=dict)
    store_is_up: bool = True


@dataclass(frozen=True, slots=True)
class Member:
    """One worker and its engine."""

    worker: Worker
    engine: SimulatedEngine
    address: str


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds. Raises `TimeoutError`."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # engines, stores and the index announce nothing to a test
            await asyncio.sleep(0.01)


async def start_member(replica_id: str, node: Node, model: Path, decode_step_s: float = 0.0) -> Member:
    """A whole worker on the node's store."""
    access = StoreAccess(node.store.socket_name, STORE_SECRET, replica_id, retry_s=0.05)
    used = engine_settings(model, access, decode_step_s)
    engine = await SimulatedEngine.create(used)
    fingerprint = kv_fingerprint(used).digest()

    async def connect() -> AsyncStoreClient:
        return await AsyncStoreClient.connect(node.store.socket_name, fingerprint, replica_id, STORE_SECRET, 5.0)

    link = StoreLink(connect)
    await link.start()
    info = WorkerInfo(
        replica_id, "decode", node.node_id, "simulated", link.address, fingerprint, BLOCK, MODEL_LENGTH, "1",
        engine.kv_blocks,
    )  # fmt: skip
    worker = Worker(WorkerSettings(info, SECRET, MODEL, "127.0.0.1"), engine, link)
    return Member(worker, engine, await worker.start())


class Fleet:
    """Nodes, workers, one gateway, and what all of them should know."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.index = BlockIndex()
        self.pool = WorkerPool(pool_settings(), KvIndexFeed(self.index))
        self.nodes: list[Node] = []
        self.key_of: dict[bytes, int] = {}

    @property
    def members(self) -> dict[str, Member]:
        """All workers by replica id."""
        return {name: member for node in self.nodes for name, member in node.members.items()}

    async def start(self, *workers_of_a_node: Sequence[str]) -> None:
        """One node for each list of replica ids."""
        fingerprint = kv_fingerprint(engine_settings(self.model)).digest()
        for number, names in enumerate(workers_of_a_node):
            store = StoreThread(fingerprint, STORE_SLOTS * engine_settings(self.model).block_bytes)
            store.start()
            node = Node(f"node {number}", store)
            self.nodes.append(node)
            for name in names:
                node.members[name] = await start_member(name, node, self.model)
        await self.listed()

    async def listed(self) -> None:
        """The gateway knows exactly these workers, and is connected to all."""
        self.pool.update({name: member.address for name, member in self.members.items()})
        await self.pool.wait_for(lambda fleet: fleet.replicas.keys() == self.members.keys(), DEADLINE_S)

    # Traffic

    def learn(self, prompt: list[int], salt: str | None) -> None:
        """Note hashes and keys of everything that this prompt and its answer may store."""
        tokens = [*prompt, *reference(engine_settings(self.model), prompt, TOKENS)]
        parent = root_hash(salt, None)
        for number, key in enumerate(extend(root(salt, None), tokens, BLOCK)):
            parent = block_hash(parent, array("I", tokens[number * BLOCK : (number + 1) * BLOCK]).tobytes())
            self.key_of[parent] = key

    def open(self, replica_id: str, prompt: list[int], salt: str | None = None) -> WorkerStream:
        """A request of this prompt on this worker."""
        self.learn(prompt, salt)
        sampling = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True})
        request = GenerationRequest("r", prompt, sampling, max_tokens=TOKENS, cache_salt=salt)
        return self.pool.open(replica_id, Leg("decode", request, sampling, None, DEADLINE_S))

    @property
    def evictions(self) -> int:
        """Of all stores, since each was started."""
        return sum(node.store.look(lambda store: store.slot_statistics().evicted_blocks) for node in self.nodes)

    # Truth

    def device_truth(self) -> dict[str, set[int]]:
        """What the engines hold, from their own block tables."""
        return {
            name: {self.key_of[block_hash] for block_hash in member.engine._core.table._block_of}
            for name, member in self.members.items()
        }

    def host_truth(self) -> dict[str, set[int]]:
        """What the stores hold."""
        return {
            node.node_id: {self.key_of[key] for key in node.store.look(lambda store: store.readable())}
            if node.store_is_up
            else set()
            for node in self.nodes
        }

    def device_known(self, replica_ids: Iterable[str] | None = None) -> dict[str, set[int]]:
        """What the index says of each device, or of these."""
        return self._known(replica_ids or self.members, lambda key: self.index.longest_prefix([key], 0.0).device)

    def host_known(self) -> dict[str, set[int]]:
        """What the index says of the store of each node."""
        nodes = {store_of(node.node_id, node.store.fingerprint): node.node_id for node in self.nodes}
        known = self._known(nodes, lambda key: self.index.longest_prefix([key], 0.0).stores)
        return {nodes[store]: keys for store, keys in known.items()}

    def _known(self, places: Iterable[str], ask: Callable[[int], Mapping[str, int]]) -> dict[str, set[int]]:
        held = {key: ask(key) for key in set(self.key_of.values())}
        return {place: {key for key, where in held.items() if place in where} for place in places}

    def is_true(self) -> bool:
        """Whether the index holds what engines and stores hold, block by block, and nothing else."""
        held = sum(len(m.worker._blocks.snapshot(tier)) for m in self.members.values() for tier in Tier)
        return (
            self.index.statistics().places == held
            and self.device_known() == self.device_truth()
            and self.host_known() == self.host_truth()
            and all(self.is_labelled(node) for node in self.nodes if node.store_is_up)
        )

    def is_labelled(self, node: Node) -> bool:
        """Whether the store can tell the next worker the key of each block."""
        labels = node.store.look(lambda store: {key: store.label_of(key) for key in store.readable()})
        return labels == {key: self.key_of[key] for key in labels}

    async def settled(self) -> None:
        """Return when the index is true; fail with the difference when it does not become true in time."""
        try:
            await until(self.is_true)
        except TimeoutError:
            assert self.device_known() == self.device_truth()
            assert self.host_known() == self.host_truth()
            assert [node.node_id for node in self.nodes if node.store_is_up and not self.is_labelled(node)] == []
            raise
        self.index.check()
        for member in self.members.values():
            member.worker._blocks.check()
            member.engine.check()

    async def close(self) -> None:
        await self.pool.close()
        for node in self.nodes:
            for member in node.members.values():
                await member.worker.close()
            if node.store_is_up:
                await asyncio.to_thread(node.store.kill)


@asynccontextmanager
async def running_fleet(model: Path, *workers_of_a_node: Sequence[str]) -> AsyncIterator[Fleet]:
    """Everything is closed afterwards."""
    fleet = Fleet(model)
    try:
        await fleet.start(*workers_of_a_node)
        yield fleet
    finally:
        await fleet.close()


async def whole(stream: WorkerStream) -> None:
    """Read to the end."""
    while stream.open:
        await stream.next()
