"""Both sides of the connector against a real store, with an array for the device and no engine."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvtransfer.connector.orders import SaveResult, StepReport
from kvtransfer.connector.plan import LoadVerdict
from kvtransfer.tenant import tenant_of
from tests.support.store_thread import StoreThread, running_store
from tests.unit.connector.fake_engine import BLOCK, FINGERPRINT, LAYOUT, FakeEngine, FakeRequest

SLOTS = 16
ENGINES = [(1, "host"), (2, "host"), (4, "host"), (2, "staged")]


@pytest.fixture
def store() -> Iterator[StoreThread]:
    with running_store(FINGERPRINT, arena_bytes=SLOTS * LAYOUT.slot_bytes) as running:
        yield running
        running.look(lambda held: held.check())


@pytest.fixture(params=ENGINES, ids="from {0[1]} TP {0[0]}".format)
def producer(store: StoreThread, request: pytest.FixtureRequest) -> Iterator[FakeEngine]:
    engine = FakeEngine(store, *request.param)
    yield engine
    engine.close()


@pytest.fixture(params=ENGINES, ids="to {0[1]} TP {0[0]}".format)
def consumer(store: StoreThread, request: pytest.FixtureRequest) -> Iterator[FakeEngine]:
    engine = FakeEngine(store, *request.param)
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
    report = producer.carry_out(producer.scheduler.orders({}, dict[str, list[int]]().__getitem__))
    named = {block_id for result in report.loads for block_id in result.bad_block_ids}
    assert named == {12}


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
    producer.scheduler.report(producer.carry_out(orders))
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
    for result in consumer.carry_out(replace(orders, loads=lost)).loads:
        assert list(result.failed) == [0, 1, 2, 3]
        assert list(result.bad_block_ids) == [10, 11, 12, 13]


def test_a_block_is_committed_once_every_rank_has_saved_its_part(producer: FakeEngine, store: StoreThread) -> None:
    request = FakeRequest("r", 32)
    producer.scheduler.admit(request)
    orders = producer.scheduler.orders({"r": 32}, lambda _: list(range(32)))
    parts = producer.carry_out(orders).saves
    assert len(parts) == len(producer.workers)
    for part in parts:
        assert store.look(lambda held: held.slot_statistics().committed_blocks) == 0
        assert producer.scheduler.is_saving
        producer.scheduler.report(StepReport(saves=[part]))
    assert store.look(lambda held: held.slot_statistics().committed_blocks) == 2
    assert not producer.scheduler.is_saving


def test_a_block_that_one_rank_cannot_save_is_not_committed(producer: FakeEngine, store: StoreThread) -> None:
    request = FakeRequest("r", 32)
    producer.scheduler.admit(request)
    orders = producer.scheduler.orders({"r": 32}, lambda _: list(range(32)))
    *others, last = producer.carry_out(orders).saves
    unsaved = SaveResult(last.batch, unsaved=[save.key for save in orders.saves])
    producer.scheduler.report(StepReport(saves=[*others, unsaved]))
    assert store.look(lambda held: held.slot_statistics().free) == SLOTS
    assert producer.counters()["unsaved_blocks"] == 2


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
