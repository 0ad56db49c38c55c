"""The connector's worker side: copies blocks between device memory and the arena, and checksums them.

Lives in vLLM's worker process, beside the KV memory. Decides nothing and asks the store nothing but its arena. Saves
are finished before a step ends, loads run on a thread of their own, one at a time, into blocks that no computation
touches; each is reported once.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from kvtransfer.arena import Arena
from kvtransfer.checksum import block_checksum
from kvtransfer.client import StoreClient
from kvtransfer.connector.layout import BlockCopier, SlotLayout, Words
from kvtransfer.connector.orders import LoadOrder, LoadResult, SavedBlock, SaveOrder, StepOrders, StepReport
from kvtransfer.connector.settings import ConnectorSettings
from kvtransfer.errors import RequestRefused, StoreLost

IDLE_WAIT_S = 0.005
"""Longest a step that computes nothing waits for loads; without it the engine spins while they run."""

ATTACH_RETRY_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A mapped arena of one life of the store."""

    epoch: str
    client: StoreClient
    arena: Arena
    copier: BlockCopier

    def save(self, order: SaveOrder) -> SavedBlock:
        self.copier.save(order.block_id, order.slot)
        return SavedBlock(order.key, block_checksum(self.arena.slot(order.slot)))

    def close(self) -> None:
        self.client.close()
        self.arena.close()

    def load(self, order: LoadOrder) -> LoadResult:
        """Copy each block and then check it, while it is in the processor's cache."""
        started = time.perf_counter()
        corrupt = []
        for index, block in enumerate(order.blocks):
            self.copier.load(block.slot, block.block_id)
            if block_checksum(self.arena.slot(block.slot)) != block.checksum:
                corrupt.append(index)
        return LoadResult(
            order.request_id,
            corrupt=corrupt,
            bad_block_ids=[order.blocks[index].block_id for index in corrupt],
            seconds=time.perf_counter() - started,
        )


class WorkerSide:
    """One worker's copies in both directions."""

    def __init__(self, settings: ConnectorSettings, device: Words, layout: SlotLayout) -> None:
        self._settings = settings
        self._device = device
        self._layout = layout
        self._attachment: Attachment | None = None
        self._next_attach_s = float("-inf")
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._progress = threading.Condition()
        self._unfinished = 0
        self._results: list[LoadResult] = []
        self._report = StepReport()
        self._loader = threading.Thread(target=self._load_forever, name="kv-loader", daemon=True)
        self._loader.start()
        self._attach(None)

    def start_loads(self, orders: StepOrders) -> None:
        """Hand the step's loads to the loader; without the right arena they have failed already."""
        for order in orders.loads:
            attachment = self._attached(order.epoch)
            with self._progress:
                self._unfinished += 1
            if attachment is None:
                self._finish(order.failure())
            else:
                self._tasks.put(partial(self._load, attachment, order))

    def save(self, orders: StepOrders) -> None:
        """Copy the step's finished blocks into their slots."""
        started = time.perf_counter()
        attachment = self._attached(orders.epoch) if orders.saves else None
        if attachment is None:
            self._report = StepReport(orders.epoch, unsaved=[order.key for order in orders.saves])
            return
        saved = [attachment.save(order) for order in orders.saves]
        self._report = StepReport(orders.epoch, saved, save_s=time.perf_counter() - started)

    def finished_loads(self, *, idle: bool) -> Sequence[LoadResult]:
        """Loads that ended since the last call. An idle step waits a moment for those under way."""
        with self._progress:
            if idle and not self._results and self._unfinished:
                self._progress.wait(IDLE_WAIT_S)
            results, self._results = self._results, []
            return results

    def take_report(self, loads: Sequence[LoadResult]) -> StepReport | None:
        """What this step did, with the given loads; None when nothing."""
        report, self._report = self._report, StepReport()
        if not (report.saved or report.unsaved or loads):
            return None
        return StepReport(report.epoch, report.saved, report.unsaved, loads, report.save_s)

    def close(self) -> None:
        """End the loader after the load under way."""
        self._tasks.put(None)
        self._loader.join(timeout=self._settings.timeout_s)
        if self._attachment is not None:
            self._attachment.close()

    def _load_forever(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _load(self, attachment: Attachment, order: LoadOrder) -> None:
        try:
            result = attachment.load(order)
        except Exception:  # whatever it is, the engine waits for this load's end
            log.exception("a load failed")
            result = order.failure()
        self._finish(result)

    def _finish(self, result: LoadResult) -> None:
        with self._progress:
            self._unfinished -= 1
            self._results.append(result)
            self._progress.notify()

    def _attached(self, epoch: str) -> Attachment | None:
        """The arena of that life of the store, mapped first if need be; None when it cannot be had."""
        if not epoch:
            return None
        if self._attachment is None or self._attachment.epoch != epoch:
            self._attach(epoch)
        current = self._attachment
        return current if current is not None and current.epoch == epoch else None

    def _attach(self, epoch: str | None) -> None:
        """Map the store's arena, at most once a second."""
        if time.monotonic() < self._next_attach_s:
            return
        self._next_attach_s = time.monotonic() + ATTACH_RETRY_S
        settings = self._settings
        try:
            client = StoreClient.connect(
                settings.socket_name, settings.fingerprint, "connector/worker", settings.secret, settings.timeout_s
            )
            arena = client.attach(self._layout.slot_bytes)
        except (StoreLost, RequestRefused) as loss:
            log.warning("no arena of the KV store (wanted life %s): %s", epoch or "any", loss)
            return
        if self._attachment is not None:
            self._tasks.put(self._attachment.close)  # after the loads that read its arena
        copier = BlockCopier(self._device, arena.array, self._layout)
        self._attachment = Attachment(client.epoch, client, arena, copier)
