"""The connector's worker side: has blocks copied between device memory and the arena.

Lives in vLLM's worker process, beside the KV memory. Decides nothing and asks the store nothing but its arena. Saves
begin before a step ends, loads run on a thread of their own, one at a time, into blocks that no computation touches;
each is reported once, when it has ended.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from kvtransfer.arena import Arena
from kvtransfer.client import StoreClient
from kvtransfer.connector.copier import BlockCopier, MakeCopier
from kvtransfer.connector.orders import LoadOrder, LoadResult, SavedBlock, SaveResult, StepOrders, StepReport
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

    def close(self) -> None:
        self.copier.close()
        self.client.close()
        self.arena.close()


class WorkerSide:
    """One worker's copies in both directions."""

    def __init__(self, settings: ConnectorSettings, make_copier: MakeCopier) -> None:
        self._settings = settings
        self._make_copier = make_copier
        self._attachment: Attachment | None = None
        self._next_attach_s = float("-inf")
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._progress = threading.Condition()
        self._unfinished = 0
        self._loaded: list[LoadResult] = []
        self._saved: list[SaveResult] = []
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
                self._tasks.put(partial(self._load, order, attachment.copier.load(order)))

    def save(self, orders: StepOrders) -> None:
        """Copy the step's finished blocks into their slots."""
        if not orders.saves:
            return
        attachment = self._attached(orders.epoch)
        with self._progress:
            self._unfinished += 1
        done = partial(self._finish_save, orders, time.perf_counter())
        if attachment is None:
            done(())
        else:
            attachment.copier.save(orders.saves, done)

    def finished_loads(self, *, idle: bool) -> Sequence[LoadResult]:
        """Loads that ended since the last call. An idle step waits a moment for what is under way."""
        with self._progress:
            if idle and self._unfinished and not (self._loaded or self._saved):
                self._progress.wait(IDLE_WAIT_S)
            loaded, self._loaded = self._loaded, []
            return loaded

    def take_report(self, loads: Sequence[LoadResult]) -> StepReport | None:
        """The saves that ended since the last call, and the given loads; None when there is nothing."""
        if not (self._saved or loads):
            return None
        with self._progress:
            saved, self._saved = self._saved, []
        return StepReport(saved, loads)

    def close(self) -> None:
        """End the loader after the load under way."""
        self._tasks.put(None)
        self._loader.join(timeout=self._settings.timeout_s)
        if self._attachment is not None:
            self._attachment.close()

    def _load_forever(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _load(self, order: LoadOrder, copy: Callable[[], Sequence[int]]) -> None:
        started_s = time.perf_counter()
        try:
            result = order.result(copy(), time.perf_counter() - started_s)
        except Exception:  # whatever it is, the engine waits for this load's end
            log.exception("a load failed")
            result = order.failure()
        self._finish(result)

    def _finish(self, result: LoadResult) -> None:
        with self._progress:
            self._unfinished -= 1
            self._loaded.append(result)
            self._progress.notify()

    def _finish_save(self, orders: StepOrders, started_s: float, saved: Sequence[SavedBlock]) -> None:
        there = {block.key for block in saved}
        unsaved = [order.key for order in orders.saves if order.key not in there]
        with self._progress:
            self._unfinished -= 1
            self._saved.append(SaveResult(orders.batch, saved, unsaved, time.perf_counter() - started_s))
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
            arena = client.attach(settings.layout.slot_bytes)
        except (StoreLost, RequestRefused) as loss:
            log.warning("no arena of the KV store (wanted life %s): %s", epoch or "any", loss)
            return
        if self._attachment is not None:
            self._tasks.put(self._attachment.close)  # after the loads that read its arena
        try:
            copier = self._make_copier(arena.array)
        except BaseException:
            arena.close()
            client.close()
            raise
        self._attachment = Attachment(client.epoch, client, arena, copier)
