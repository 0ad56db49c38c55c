"""An engine without a model: its requests, its ranks' memory and both sides of the connector, stepped by hand."""

import hashlib
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kvtransfer.connector.copier import BlockCopier, HostCopier
from kvtransfer.connector.layout import Bytes, HeadShare, SlotLayout, share_of
from kvtransfer.connector.orders import StepOrders, StepReport
from kvtransfer.connector.plan import LoadVerdict
from kvtransfer.connector.scheduler import SchedulerSide
from kvtransfer.connector.settings import ConnectorSettings, LegParams
from kvtransfer.connector.staged_copier import StagedCopier
from kvtransfer.connector.store_link import StoreLink
from kvtransfer.connector.worker import WorkerSide
from tests.support.store_thread import SECRET, StoreThread
from tests.unit.connector.devices import DEADLINE_S, Kv, aligned

BLOCK = 16
LAYOUT = SlotLayout(layers=2, kv_heads=2, unit_bytes=64)
FINGERPRINT = "f" * 32


def host(device: Kv, share: HeadShare, arena: Bytes) -> BlockCopier:
    return HostCopier(device, arena, LAYOUT, share)


def staged(device: Kv, share: HeadShare, arena: Bytes) -> BlockCopier:
    return StagedCopier(torch.from_numpy(device), arena, LAYOUT, share, lambda: None)


COPIERS = {"host": host, "staged": staged}


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
    """A device of 32 blocks, divided among `degree` ranks, and the two sides of the connector, stepped as by vLLM."""

    def __init__(self, store: StoreThread, degree: int, kind: str) -> None:
        settings = ConnectorSettings(store.socket_name, FINGERPRINT, SECRET, LAYOUT, owner_pid=0)
        self.device = aligned((2, 32, 2, 4, 8), torch.int16)
        self.clock_s = 0.0
        shares = [share_of(rank, degree, LAYOUT.kv_heads) for rank in range(degree)]
        self.workers = [WorkerSide(settings, partial(COPIERS[kind], self._part(share), share)) for share in shares]
        self.link = StoreLink(settings, now=lambda: self.clock_s)
        self.scheduler = SchedulerSide(self.link, BLOCK, degree)

    def step(self, scheduled: dict[str, int], tables: dict[str, list[int]]) -> StepOrders:
        """One step: orders, copies, report."""
        orders = self.scheduler.orders(scheduled, tables.__getitem__)
        self.scheduler.report(self.carry_out(orders))
        assert not self.scheduler.is_saving
        return orders

    def carry_out(self, orders: StepOrders) -> StepReport:
        """Every rank does its part; their reports as vLLM puts them together."""
        whole = StepReport()
        for worker in self.workers:
            worker.start_loads(orders)
            worker.save(orders)
            whole += self._report_of(worker, orders)
        return whole

    def _report_of(self, worker: WorkerSide, orders: StepOrders) -> StepReport:
        """What ends in later steps counts as well."""
        report, give_up_s = StepReport(), time.monotonic() + DEADLINE_S
        while len(report.loads) < len(orders.loads) or len(report.saves) < bool(orders.saves):
            assert time.monotonic() < give_up_s
            report += worker.take_report(worker.finished_loads(idle=True)) or StepReport()
        return report

    def _part(self, share: HeadShare) -> Kv:
        return self.device[:, :, share.heads.start : share.heads.stop]

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
        for worker in self.workers:
            worker.close()
