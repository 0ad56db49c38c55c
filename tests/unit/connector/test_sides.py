"""Both sides of the connector against a real store, with an array for the device and no engine."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from kvtransfer.connector.layout import SlotLayout
from kvtransfer.connector.orders import StepOrders, StepReport
from kvtransfer.connector.plan import LoadVerdict
from kvtransfer.connector.scheduler import SchedulerSide
from kvtransfer.connector.settings import ConnectorSettings, LegParams
from kvtransfer.connector.store_link import StoreLink
from kvtransfer.connector.worker import WorkerSide
from kvtransfer.tenant import tenant_of
from tests.support.store_thread import SECRET, StoreThread, running_store

BLOCK = 16
LAYOUT = SlotLayout(layers=2, kv_heads=2, unit_bytes=64)
FINGERPRINT = "f" * 32
SLOTS = 16


@dataclass
class FakeRequest:
    """What vLLM's scheduler knows of a request. Its block hashes depend on `seed` only."""

    request_id: str
    num_prompt_tokens: int
    seed: int = 0
    handoff: str | None = None
    num_computed_tokens: int = 0
    cache_salt: str | None = None
    skip_reading_prefix_cache: bool = False
    block_hashes: list[bytes] = field(init=False)
    kv_transfer_params: dict[str, Any] | None = field(init=False)

    def __post_init__(self) -> None:
        names = (f"{self.seed}/{index}" for index in range(self.num_prompt_tokens // BLOCK))
        self.block_hashes = [hashlib.sha256(name.encode()).digest() for name in names]
        self.kv_transfer_params = LegParams(f"leg-{self.request_id}", self.handoff).to_params()

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens


class FakeEngine:
    """A device of 32 blocks and the connector's two sides, stepped by hand as vLLM steps them."""

    def __init__(self, store: StoreThread) -> None:
        settings = ConnectorSettings(store.socket_name, FINGERPRINT, SECRET, LAYOUT.slot_bytes, owner_pid=0)
        self.device = np.zeros((2, 32, 2, 32), np.int16)
        self.clock_s = 0.0
        self.worker = WorkerSide(settings, self.device, LAYOUT)
        self.link = StoreLink(settings, now=lambda: self.clock_s)
        self.scheduler = SchedulerSide(self.link, BLOCK)

    def step(self, scheduled: dict[str, int], tables: dict[str, list[int]]) -> StepOrders:
        """One step: orders, copies, report."""
        orders = self.scheduler.orders(scheduled, tables.__getitem__)
        self.worker.start_loads(orders)
        self.worker.save(orders)
        report = self._report(len(orders.loads))
        if report is not None:
            self.scheduler.report(report)
        return orders

    def _report(self, loads: int) -> StepReport | None:
        finished: list[Any] = []
        while len(finished) < loads:
            finished += self.worker.finished_loads(idle=True)
        return self.worker.take_report(finished)

    def compute(self, request: FakeRequest, blocks: list[int], tokens: int) -> StepOrders:
        """A step that computes the request's next tokens."""
        for position in range(request.num_computed_tokens // BLOCK, (request.num_computed_tokens + tokens) // BLOCK):
            self.device[:, blocks[position]] = request.seed * 100 + position + 1
        orders = self.step({request.request_id: tokens}, {request.request_id: blocks})
        request.num_computed_tokens += tokens
        return orders

    def verdicts(self) -> list[LoadVerdict]:
        report = self.scheduler.take_report()
        return [] if report is None else [verdict for leg in report.verdicts.values() for verdict in leg]

    def counters(self) -> dict[str, float]:
        report = self.scheduler.take_report()
        return {} if report is None else report.counters

    def close(self) -> None:
        self.scheduler.close()
        self.worker.close()


@pytest.fixture
def store() -> Iterator[StoreThread]:
    with running_store(FINGERPRINT, arena_bytes=SLOTS * LAYOUT.slot_bytes) as running:
        yield running
        running.look(lambda held: held.check())


@pytest.fixture
def producer(store: StoreThread) -> Iterator[FakeEngine]:
    engine = FakeEngine(store)
    yield engine
    engine.close()


@pytest.fixture
def consumer(store: StoreThread) -> Iterator[FakeEngine]:
    engine = FakeEngine(store)
    yield engine
    engine.close()


def produce(engine: FakeEngine, tokens: int, seed: int = 0, handoff: str | None = None) -> FakeRequest:
    request = FakeRequest(f"p{seed}", tokens, seed, handoff)
    engine.scheduler.admit(request)
    assert engine.scheduler.match(request.request_id, 0) == 0
    engine.scheduler.allocated(request.request_id, list(range(32)), 0)
    engine.compute(request, list(range(32)), tokens)
    engine.scheduler.finished(request.request_id)
    return request


def consume(engine: FakeEngine, tokens: int, seed: int = 0, name: str = "c") -> tuple[FakeRequest, list[int]]:
    """A request that has been matched and given blocks 10, 11, ..., and its load ordered."""
    request = FakeRequest(name, tokens, seed)
    engine.scheduler.admit(request)
    external = engine.scheduler.match(name, 0)
    blocks = list(range(10, 32))
    engine.scheduler.allocated(name, blocks, external)
    return request, blocks


def test_blocks_are_saved_as_chunks_fill_them(producer: FakeEngine, store: StoreThread) -> None:
    request = FakeRequest("r", 100)
    producer.scheduler.admit(request)
    saves = [len(producer.compute(request, list(range(32)), tokens).saves) for tokens in (40, 8, 52)]
    assert saves == [2, 1, 3]
    assert store.look(lambda held: held.slot_statistics().committed_blocks) == 6


def test_a_block_that_is_there_is_not_copied_again(producer: FakeEngine, consumer: FakeEngine) -> None:
    produce(producer, 64)
    request = FakeRequest("again", 80)
    consumer.scheduler.admit(request)
    assert [save.key for save in consumer.compute(request, list(range(32)), 80).saves] == request.block_hashes[4:]


def test_what_one_engine_saved_another_loads(producer: FakeEngine, consumer: FakeEngine, store: StoreThread) -> None:
    produce(producer, 64)
    _, blocks = consume(consumer, 70)
    consumer.step({}, {})
    for position in range(4):
        assert (consumer.device[:, blocks[position]] == position + 1).all()
    assert consumer.verdicts() == [LoadVerdict(4, 0, 0, "")]
    assert store.look(lambda held: held.slot_statistics().pins) == 0


def test_only_what_the_device_lacks_is_loaded(producer: FakeEngine, consumer: FakeEngine) -> None:
    produce(producer, 64)
    request = FakeRequest("c", 70)
    consumer.scheduler.admit(request)
    assert [consumer.scheduler.match("c", tokens) for tokens in (0, 16, 48, 64, 0)] == [64, 48, 16, 0, 64]
    assert consumer.scheduler.match("c", 32) == 32
    consumer.scheduler.allocated("c", list(range(10, 32)), 32)
    consumer.step({}, {})
    assert (consumer.device[:, 11] == 0).all()
    assert (consumer.device[:, 12] == 3).all()
    assert (consumer.device[:, 13] == 4).all()


def test_a_corrupt_block_is_named_distrusted_and_not_matched_again(
    producer: FakeEngine, consumer: FakeEngine, store: StoreThread
) -> None:
    request = produce(producer, 64)
    _flip_a_bit(store, request.block_hashes[0])
    consume(consumer, 70)
    consumer.step({}, {})
    assert consumer.verdicts() == [LoadVerdict(0, 4, 0, "corrupt")]
    assert consumer.scheduler.match("c", 0) == 0
    assert store.look(lambda held: held.slot_statistics().distrusted_blocks) == 1


def test_bad_blocks_are_reported_by_their_device_number(producer: FakeEngine, store: StoreThread) -> None:
    request = produce(producer, 64)
    _flip_a_bit(store, request.block_hashes[2])
    consume(producer, 70)
    producer.worker.start_loads(producer.scheduler.orders({}, dict[str, list[int]]().__getitem__))
    results = list(producer.worker.finished_loads(idle=True))
    while not results:
        results = list(producer.worker.finished_loads(idle=True))
    assert [list(result.bad_block_ids) for result in results] == [[12]]


def test_a_request_that_must_not_read_the_cache_is_not_matched(producer: FakeEngine, consumer: FakeEngine) -> None:
    produce(producer, 64)
    request = FakeRequest("logprobs", 70, skip_reading_prefix_cache=True)
    consumer.scheduler.admit(request)
    assert consumer.scheduler.match("logprobs", 0) == 0


@pytest.mark.parametrize("moment", ["matched", "loading"])
def test_a_request_that_ends_early_drops_its_pins(
    producer: FakeEngine, consumer: FakeEngine, store: StoreThread, moment: str
) -> None:
    produce(producer, 64)
    if moment == "loading":
        consume(consumer, 70)
    else:
        consumer.scheduler.admit(FakeRequest("c", 70))
        consumer.scheduler.match("c", 0)
    assert store.look(lambda held: held.slot_statistics().pins) == 4
    consumer.scheduler.finished("c")
    consumer.step({}, {})
    assert store.look(lambda held: held.slot_statistics().pins) == 0


def test_a_handoff_is_concluded_after_its_last_commit(producer: FakeEngine, store: StoreThread) -> None:
    request = FakeRequest("p", 64, handoff="h")
    producer.scheduler.admit(request)
    orders = producer.scheduler.orders({"p": 64}, lambda _: list(range(32)))
    producer.scheduler.finished("p")  # vLLM says so before it hands over the step's report
    assert _handoff_state(store, "h") == "pending"
    producer.worker.save(orders)
    report = producer.worker.take_report([])
    assert report is not None
    producer.scheduler.report(report)
    assert _handoff_state(store, "h") == "ready"


def test_an_aborted_handoff_is_concluded_without_its_blocks(producer: FakeEngine, store: StoreThread) -> None:
    request = FakeRequest("p", 64, handoff="h")
    producer.scheduler.admit(request)
    producer.compute(request, list(range(32)), 32)
    producer.scheduler.finished("p")
    assert _handoff_state(store, "h") == "failed"


def test_a_handoff_without_room_is_concluded_at_once(producer: FakeEngine, store: StoreThread) -> None:
    tokens = (SLOTS + 2) * BLOCK
    request = FakeRequest("p", tokens, handoff="h")
    producer.scheduler.admit(request)
    producer.compute(request, list(range(32)), tokens)
    assert _handoff_state(store, "h") == "failed"
    assert producer.counters()["no_room_blocks"] == 2


def test_without_a_store_nothing_is_found_or_saved_and_nothing_raises(producer: FakeEngine, store: StoreThread) -> None:
    produce(producer, 64)
    store.kill()
    request, _ = consume(producer, 70)
    assert producer.compute(request, list(range(32)), 64).saves == []
    producer.scheduler.finished("c")
    assert producer.link.epoch() == ""
    store.start()
    assert producer.link.epoch() == ""  # not yet: at most once a second
    producer.clock_s += 1.0
    assert producer.link.epoch() != ""
    produce(producer, 64, seed=1)
    assert producer.counters()["store_lost"] == 1


def test_pins_of_a_lost_connection_are_not_read(producer: FakeEngine, consumer: FakeEngine, store: StoreThread) -> None:
    produce(producer, 64)
    request = FakeRequest("c", 70)
    consumer.scheduler.admit(request)
    external = consumer.scheduler.match("c", 0)
    store.kill()
    store.start()
    consumer.scheduler.admit(FakeRequest("other", 70, seed=5, handoff="h"))  # finds the store lost
    consumer.clock_s += 1.0
    consumer.scheduler.allocated("c", list(range(10, 32)), external)
    consumer.step({}, {})
    assert consumer.verdicts() == [LoadVerdict(0, 4, 0, "failed")]


def test_a_load_from_an_arena_that_is_gone_fails_and_is_reported(
    producer: FakeEngine, consumer: FakeEngine, store: StoreThread
) -> None:
    produce(producer, 64)
    consume(consumer, 70)
    orders = consumer.scheduler.orders({}, dict[str, list[int]]().__getitem__)
    lost = [replace(order, epoch="another life") for order in orders.loads]
    consumer.worker.start_loads(replace(orders, loads=lost))
    (result,) = consumer.worker.finished_loads(idle=True)
    assert list(result.failed) == [0, 1, 2, 3]
    assert list(result.bad_block_ids) == [10, 11, 12, 13]


def _handoff_state(store: StoreThread, handoff_id: str) -> str:
    view = store.look(lambda held: held.find(handoff_id))
    assert view is not None
    return view.state.value


def _flip_a_bit(store: StoreThread, key: bytes) -> None:
    with store.client() as client:
        (block,) = client.pin([key])
        arena = client.attach(LAYOUT.slot_bytes)
        arena.slot(block.slot)[5] ^= 1
        arena.close()
        client.unpin([key])


def test_the_store_learns_whose_blocks_they_are_and_never_the_salt(store: StoreThread, producer: FakeEngine) -> None:
    requests = [FakeRequest(str(seed), 2 * BLOCK, seed, cache_salt=salt) for seed, salt in enumerate([None, "a", "b"])]
    for number, request in enumerate(requests):
        producer.scheduler.admit(request)
        producer.device[:, 2 * number : 2 * number + 2] = number + 1
    tables = {request.request_id: [2 * i, 2 * i + 1] for i, request in enumerate(requests)}
    producer.step(dict.fromkeys(tables, 2 * BLOCK), tables)
    assert store.look(lambda it: [it._slots._shares.held(tenant_of(salt)) for salt in (None, "a", "b")]) == [2, 2, 2]
    assert store.look(lambda it: it._slots._shares.tenants) == 3
