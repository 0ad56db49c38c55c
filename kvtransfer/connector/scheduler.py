"""The connector's scheduler side: decides what each step saves and loads, and keeps the store's books.

Owns the engine's one accounting connection to the store, so that reservations, commits and pins have one order. Lives
in vLLM's engine-core process and is called by its scheduler only; never waits for blocks. Invariants: every load that
was ordered is reported once and its pins are dropped then; every hand-off announced is concluded, after its last
commit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvtransfer.connector.counters import Counters, Report
from kvtransfer.connector.handoffs import Handoffs
from kvtransfer.connector.orders import BlockLoad, LoadOrder, LoadResult, SaveOrder, SaveResult, StepOrders, StepReport
from kvtransfer.connector.parts import LoadParts, SavesUnderWay
from kvtransfer.connector.plan import LoadVerdict, PinnedPrefix, blocks_to_save, judge_load
from kvtransfer.connector.settings import LegParams
from kvtransfer.connector.store_link import StoreLink
from kvtransfer.tenant import Tenant, tenant_of
from kvtransfer.transport import BlockKey


class SchedulerRequest(Protocol):
    """What is used of vLLM's `Request`."""

    request_id: str
    block_hashes: Sequence[BlockKey]
    num_computed_tokens: int
    num_prompt_tokens: int
    num_tokens: int
    kv_transfer_params: dict[str, Any] | None
    cache_salt: str | None
    skip_reading_prefix_cache: bool


@dataclass(slots=True)
class RequestState:
    """A request the engine knows. `prefix`: the answer given to the engine's matching, valid until blocks are
    allocated. `unreadable`: a load left nothing, so it is not matched again.
    """

    request: SchedulerRequest
    params: LegParams
    tenant: Tenant
    saved: int = 0
    prefix: PinnedPrefix | None = None
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Loading:
    """A load that was ordered and not reported yet."""

    prefix: PinnedPrefix
    start: int
    leg: str
    parts: LoadParts


class SchedulerSide:
    """State of all requests of one engine towards the store. `ranks` worker sides carry out every order."""

    def __init__(self, link: StoreLink, block_size: int, ranks: int = 1) -> None:
        self._link = link
        self._block_size = block_size
        self._ranks = ranks
        self._requests: dict[str, RequestState] = {}
        self._loading: dict[str, Loading] = {}
        self._new_loads: list[LoadOrder] = []
        self._saves = SavesUnderWay(ranks)
        self._batch = 0
        self._handoffs = Handoffs(link)
        self._counters = Counters()
        self._verdicts: dict[str, list[LoadVerdict]] = {}
        self._reported: dict[str, float] = {}
        self._generation = link.generation

    def admit(self, request: SchedulerRequest) -> None:
        """A new request: announce its hand-off, if it has one."""
        self._notice_reconnection()
        params = LegParams.from_params(request.kv_transfer_params)
        self._requests[request.request_id] = RequestState(request, params, tenant_of(request.cache_salt))
        if params.handoff_id is not None:
            prompt_blocks = request.num_prompt_tokens // self._block_size
            self._handoffs.announce(params.handoff_id, tuple(request.block_hashes[:prompt_blocks]))

    def match(self, request_id: str, device_tokens: int) -> int:
        """Tokens the store adds to the `device_tokens` which the device has. Asks the store once per admission."""
        state = self._requests[request_id]
        if state.unreadable or state.request.skip_reading_prefix_cache:
            return 0
        start = device_tokens // self._block_size
        self._link.epoch()
        if state.prefix is None or not state.prefix.covers(start, self._link.generation):
            self._drop_prefix(state)
            state.prefix = self._pin(state, start)
        return state.prefix.beyond(start) * self._block_size

    def allocated(self, request_id: str, block_ids: Sequence[int], external_tokens: int) -> None:
        """The engine has given the request device blocks; with `external_tokens` the load can start."""
        state = self._requests[request_id]
        prefix = state.prefix
        if external_tokens <= 0 or prefix is None:
            self._drop_prefix(state)
            return
        state.prefix = None
        start = prefix.end - external_tokens // self._block_size
        pinned = prefix.blocks[start - prefix.start :]
        blocks = [BlockLoad(block_ids[start + i], block.slot, block.checksum) for i, block in enumerate(pinned)]
        self._loading[request_id] = Loading(prefix, start, state.params.leg, LoadParts(self._ranks))
        epoch = self._link.epoch()
        held = prefix.generation == self._link.generation
        self._new_loads.append(LoadOrder(request_id, epoch if held else "", blocks))

    def orders(self, scheduled: Mapping[str, int], block_ids: Callable[[str], Sequence[int]]) -> StepOrders:
        """This step's work, where `scheduled` is how many tokens it computes of each request."""
        self._notice_reconnection()
        epoch = self._link.epoch()
        self._batch += 1
        loads, self._new_loads = self._new_loads, []
        saves = self._reserve(self._filled(scheduled, block_ids))
        return StepOrders(self._batch, epoch, saves, loads, idle=not scheduled)

    @property
    def is_saving(self) -> bool:
        """Whether blocks were ordered to be saved that the worker side has not reported yet."""
        return len(self._saves) > 0

    def report(self, report: StepReport) -> None:
        """The worker side's answer to a step's orders."""
        for saves in report.saves:
            self._settle_saves(saves)
        for loaded in report.loads:
            self._settle_load(loaded)
        self.close_handoffs()

    def finished(self, request_id: str) -> None:
        """The request is over, for whatever reason. A load under way is still reported later."""
        state = self._requests.pop(request_id, None)
        if state is None:
            return
        self._drop_prefix(state)
        if state.params.handoff_id is not None:
            self._handoffs.release(state.params.handoff_id)
            self.close_handoffs()

    def close_handoffs(self) -> None:
        """Conclude the hand-offs that are over and have no block on its way."""
        self._handoffs.conclude_settled(self._saves)

    def take_report(self) -> Report | None:
        """Counters and verdicts since the last call, or None when nothing changed."""
        self._counters.store_lost = self._link.losses
        counters = self._counters.to_dict()
        if counters == self._reported and not self._verdicts:
            return None
        self._reported = counters
        verdicts, self._verdicts = self._verdicts, {}
        return Report(counters, verdicts)

    def close(self) -> None:
        self._link.close()

    def _pin(self, state: RequestState, start: int) -> PinnedPrefix:
        request, limit = state.request, state.params.load_limit_tokens
        end_tokens = request.num_tokens if limit is None else min(limit, request.num_tokens)
        keys = tuple(request.block_hashes[start : end_tokens // self._block_size])
        blocks = self._link.pin(keys) if keys else ()
        return PinnedPrefix(start, keys[: len(blocks)], blocks, self._link.generation)

    def _drop_prefix(self, state: RequestState) -> None:
        prefix, state.prefix = state.prefix, None
        if prefix is not None and prefix.keys:
            self._link.unpin(prefix.keys, prefix.generation)

    def _filled(
        self, scheduled: Mapping[str, int], block_ids: Callable[[str], Sequence[int]]
    ) -> dict[BlockKey, tuple[int, RequestState]]:
        """Blocks that this step fills, or finds filled, with their device block and request; each key once."""
        found: dict[BlockKey, tuple[int, RequestState]] = {}
        for request_id, tokens in scheduled.items():
            state = self._requests.get(request_id)
            if state is None:
                continue
            computed = state.request.num_computed_tokens + tokens
            positions = blocks_to_save(state.saved, computed, len(state.request.block_hashes), self._block_size)
            if not positions:
                continue
            ids = block_ids(request_id)
            for position in positions:
                found.setdefault(state.request.block_hashes[position], (ids[position], state))
            state.saved = positions.stop
        return found

    def _reserve(self, filled: Mapping[BlockKey, tuple[int, RequestState]]) -> list[SaveOrder]:
        by_tenant: dict[Tenant, list[BlockKey]] = {}
        for key, (_, state) in filled.items():
            by_tenant.setdefault(state.tenant, []).append(key)
        saves = []
        for tenant, keys in by_tenant.items():
            reserved = self._link.reserve(keys, tenant)
            if reserved.full:
                self._counters.no_room_blocks += reserved.full
                self._handoffs.give_up(keys, reserved.slots)
            slots = zip(keys, reserved.slots, strict=True)
            saves += [SaveOrder(key, filled[key][0], slot) for key, slot in slots if slot is not None]
        self._saves.order(self._batch, (save.key for save in saves))
        return saves

    def _settle_saves(self, result: SaveResult) -> None:
        self._notice_reconnection()
        self._counters.save_s += result.seconds
        settled = self._saves.settle(result)
        if settled.checksums:
            self._link.commit(list(settled.checksums), list(settled.checksums.values()))
            self._counters.saved_blocks += len(settled.checksums)
        if settled.unsaved:
            self._link.abandon(settled.unsaved)
            self._counters.unsaved_blocks += len(settled.unsaved)

    def _settle_load(self, result: LoadResult) -> None:
        loading = self._loading[result.request_id]
        parts = loading.parts
        if not parts.take(result):
            return
        del self._loading[result.request_id]
        prefix, count = loading.prefix, loading.prefix.end - loading.start
        verdict = judge_load(loading.start, count, parts.corrupt, parts.failed)
        if parts.corrupt:
            self._link.distrust([prefix.keys[loading.start - prefix.start + i] for i in sorted(parts.corrupt)])
        self._link.unpin(prefix.keys, prefix.generation)
        state = self._requests.get(result.request_id)
        if state is not None and verdict.recomputed_blocks:
            state.unreadable = True
        self._count_load(parts.seconds, verdict, loading.leg)

    def _count_load(self, seconds: float, verdict: LoadVerdict, leg: str) -> None:
        self._counters.loaded_blocks += verdict.loaded_blocks
        self._counters.corrupt_loads += verdict.reason == "corrupt"
        self._counters.failed_loads += verdict.reason == "failed"
        self._counters.load_s += seconds
        self._verdicts.setdefault(leg, []).append(verdict)

    def _notice_reconnection(self) -> None:
        """A new connection knows nothing of the old one's reservations and hand-offs."""
        if not self._link.epoch():
            self._saves.forget()
        if self._generation == self._link.generation:
            return
        self._generation = self._link.generation
        self._saves.forget()
        self._handoffs.start_over()
