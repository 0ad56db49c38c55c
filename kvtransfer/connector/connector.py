"""vLLM's connector interface, mapped onto our two sides. Adapts and refuses; decides nothing.

vLLM builds one instance in its engine core (scheduler role) and one in its worker process, both by module path. A
setup whose blocks cannot be shared is refused here, before any weight of it serves. Every `(n, True)` answer to
matching is followed by exactly one report of the load, also after an abort.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.platforms import current_platform
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request

from kvtransfer.connector.layout import share_of
from kvtransfer.connector.orders import LoadResult, StepOrders, StepReport
from kvtransfer.connector.orphans import die_with
from kvtransfer.connector.scheduler import SchedulerSide
from kvtransfer.connector.settings import ConnectorSettings
from kvtransfer.connector.store_link import StoreLink
from kvtransfer.connector.support import KvTraits, refusal
from kvtransfer.connector.tensors import copier_for
from kvtransfer.connector.worker import WorkerSide


class UnsupportedModel(ValueError):
    """This engine's KV blocks cannot be shared; the message names the reasons."""


@dataclass
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is untyped here
    """Scheduler to worker."""

    orders: StepOrders


@dataclass
class WorkerMetadata(KVConnectorWorkerMetadata):  # type: ignore[misc]  # vLLM is untyped here
    """Worker to scheduler."""

    report: StepReport

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Reports of several ranks are one report."""
        assert isinstance(other, WorkerMetadata)
        return WorkerMetadata(self.report + other.report)


@dataclass
class ConnectorStats(KVConnectorStats):  # type: ignore[misc]  # vLLM is untyped here
    """`Report.to_data` on its way to the owner. Totals: the later one holds all."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        self.data = {}

    def is_empty(self) -> bool:
        return not self.data

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        return other

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data.get("counters", {}))


class BatonConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # vLLM is untyped here
    """One role of the connector, in the process of that role."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._settings = ConnectorSettings.from_extra_config(self._kv_transfer_config.kv_connector_extra_config)
        die_with(self._settings.owner_pid)
        if role is KVConnectorRole.WORKER:
            die_with(os.getppid())  # the engine core, which may be killed alone
        self._ranks = vllm_config.parallel_config.tensor_parallel_size
        self._refuse_unsupported(vllm_config, kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        self._finished_loads: list[LoadResult] = []
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(StoreLink(self._settings), vllm_config.cache_config.block_size, self._ranks)

    def _refuse_unsupported(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
        reason = refusal(_traits(vllm_config, kv_cache_config))
        if reason is not None:
            raise UnsupportedModel(reason)
        layout = self._settings.layout
        ours = share_of(0, self._ranks, layout.kv_heads).count * layout.head_bytes
        real = _block_bytes(kv_cache_config)
        if real != ours:
            raise UnsupportedModel(f"a block of this engine has {real} bytes a rank, its fingerprint says {ours}")

    @property
    def requires_kv_delivery(self) -> bool:
        """Blocks are a cache: one that was not saved is computed again."""
        return False

    @property
    def scheduler(self) -> SchedulerSide:
        assert self._scheduler is not None, "worker role"
        return self._scheduler

    # Scheduler role

    def on_new_request(self, request: Request) -> None:
        self.scheduler.admit(request)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        tokens = self.scheduler.match(request.request_id, num_computed_tokens)
        return tokens, tokens > 0

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        (block_ids,) = blocks.get_block_ids()
        self.scheduler.allocated(request.request_id, block_ids, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        state = scheduler_output.kv_connector_block_state
        return StepMetadata(
            self.scheduler.orders(
                scheduler_output.num_scheduled_tokens, lambda request_id: state.get_block_ids(request_id)[0]
            )
        )

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        metadata = connector_output.kv_connector_worker_meta
        if isinstance(metadata, WorkerMetadata):
            self.scheduler.report(metadata.report)

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        self.scheduler.finished(request.request_id)
        return False, None

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        report = self._scheduler.take_report() if self._scheduler is not None else None
        return ConnectorStats(report.to_data()) if report is not None else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return ConnectorStats(data or {})

    def has_pending_push_work(self) -> bool:
        """Blocks may still be on their way when no request is left: vLLM goes on stepping until they are reported."""
        return self.scheduler.is_saving

    def reset_cache(self) -> bool | None:
        """The store is the node's, not this engine's: nothing here to reset."""
        return True

    # Worker role

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        share = share_of(get_tensor_model_parallel_rank(), self._ranks, self._settings.layout.kv_heads)
        self._worker = WorkerSide(self._settings, copier_for(kv_caches, self._settings.layout, share))

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.start_loads(self._orders)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads finish before their request is scheduled."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Blocks are saved whole, in `wait_for_save`."""

    def wait_for_save(self) -> None:
        if self._worker is not None:
            self._worker.save(self._orders)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Called first of the three reports of a step; the other two tell of the same loads."""
        if self._worker is None:
            return None, None
        self._finished_loads = list(self._worker.finished_loads(idle=self._orders.idle))
        return None, {result.request_id for result in self._finished_loads}

    def get_block_ids_with_load_errors(self) -> set[int]:
        return {block_id for result in self._finished_loads for block_id in result.bad_block_ids}

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        if self._worker is None:
            return None
        report = self._worker.take_report(self._finished_loads)
        self._finished_loads = []
        return WorkerMetadata(report) if report is not None else None

    @property
    def _orders(self) -> StepOrders:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata)
        return metadata.orders

    # Both

    def shutdown(self) -> None:
        for side in (self._scheduler, self._worker):
            if side is not None:
                side.close()


def _traits(config: VllmConfig, kv_cache_config: KVCacheConfig) -> KvTraits:
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    parallel = config.parallel_config
    return KvTraits(
        groups=[type(spec).__name__ for spec in specs],
        sliding_window=next((w for spec in specs if (w := getattr(spec, "sliding_window", None))), None),
        attention_chunk_size=next((c for spec in specs if (c := getattr(spec, "attention_chunk_size", None))), None),
        pipeline_parallel=parallel.pipeline_parallel_size,
        context_parallel=parallel.decode_context_parallel_size,
        device=current_platform.device_name,
        hash_algorithm=config.cache_config.prefix_caching_hash_algo,
    )


def _block_bytes(kv_cache_config: KVCacheConfig) -> int:
    """Bytes of one block over all layers on one rank."""
    (group,) = kv_cache_config.kv_cache_groups
    return int(group.kv_cache_spec.page_size_bytes) * len(group.layer_names)
