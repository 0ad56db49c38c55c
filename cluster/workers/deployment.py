"""The workers as Serve deployments: a replica builds its engine, joins its node's store and listens for gateways.

Serve starts, health-checks and ends replicas; requests never pass through it. So Serve's own drain sees nothing: a
replica that is told to end waits here for its live streams.
"""

import asyncio
import logging
import os
import time
import uuid
from typing import ClassVar

import ray
from ray import serve

from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.frames import Role, WorkerInfo
from cluster.logs import join_serve_logs, log_kept
from cluster.models.fetch import resolve
from cluster.models.identity import model_digest
from cluster.pools.reports import report
from cluster.security import tls_files, tls_identity
from cluster.workers.cores import CoreLease
from cluster.workers.engine_choice import ChosenEngine, StartedEngine, Surroundings, choose
from cluster.workers.pulse import PulseSettings
from cluster.workers.store_actor import NodeStoreSettings, StoreEndpoint, ensure_store
from cluster.workers.store_link import StoreLink
from cluster.workers.worker import Worker, WorkerSettings
from configs.schema import BatonConfig, PoolConfig, TimeoutConfig, WorkerUserConfig
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.fingerprint import KvFingerprint
from kvtransfer.settings import DiskSettings, StoreSettings
from kvtransfer.tenant import tenant_of

log = logging.getLogger("ray.serve")

STORE_START_S = 60.0
CLOSE_S = 15.0
"""What is kept of Serve's time for ending a replica, to end the engine after the drain."""


class WorkerReplica:
    """What both deployments are. Built by Serve, which awaits `__init__` and `__del__`."""

    role: ClassVar[Role]

    async def __init__(self, config: BatonConfig) -> None:  # type: ignore[misc]  # Serve awaits it
        join_serve_logs()
        self._config = config
        self._pool: PoolConfig = config.prefill if self.role == "prefill" else config.decode
        self._replica_id = serve.get_replica_context().replica_id.unique_id
        self._began = time.monotonic()
        self._lease: CoreLease | None = None
        with log_kept():
            self._worker = await self._build()
        self._address = await self._worker.start()
        self._progress(f"ready at {self._address}")

    def _progress(self, text: str) -> None:
        log.info("%s worker %s: %s (%.1f s)", self.role, self._replica_id, text, time.monotonic() - self._began)

    # Building

    async def _build(self) -> Worker:
        self._progress(f"finding model {self._config.model.path}")
        path = await asyncio.to_thread(resolve, self._config.model.path)
        digest = await asyncio.to_thread(model_digest, path)
        if self._pool.cores is not None:
            self._lease = await CoreLease.take(self._pool.cores)
        cores = self._lease.cores if self._lease is not None else ()
        chosen = choose(self._config, self._pool, Surroundings(self._replica_id, path, digest, cores))
        kv = chosen.fingerprint()
        fingerprint = kv.digest()
        self._progress("joining the node's KV store")
        endpoint, link = await self._join_store(fingerprint)
        self._progress(f"loading model {path} into the {chosen.kind} engine")
        engine = await chosen.create(endpoint.socket_name)
        info = self._info(chosen, engine, kv, link.address)
        return Worker(self._worker_settings(info, digest), engine, link)

    async def _join_store(self, fingerprint: str) -> tuple[StoreEndpoint, StoreLink]:
        """Connected before the engine loads, so that the store does not leave for want of workers meanwhile."""
        settings = self._store_settings(fingerprint)
        secret, connect_s = self._config.security.secret, self._config.timeouts.connect_s

        async def connect() -> AsyncStoreClient:
            found = await ensure_store(settings, STORE_START_S)
            return await AsyncStoreClient.connect(found.socket_name, fingerprint, self._replica_id, secret, connect_s)

        link = StoreLink(connect)
        await link.start()
        return StoreEndpoint(settings.name, link.address), link

    def _host(self) -> str:
        return self._config.security.listen_host or ray.util.get_node_ip_address()

    def _store_settings(self, fingerprint: str) -> NodeStoreSettings:
        store = self._config.store
        return NodeStoreSettings(
            node_id=ray.get_runtime_context().get_node_id(),
            host=self._host(),
            fingerprint=fingerprint,
            secret=self._config.security.secret,
            store=StoreSettings(
                arena_bytes=int(store.bytes),
                socket_name="",
                max_frame_bytes=int(store.max_frame_bytes),
                max_handoffs=store.max_handoffs,
                handoff_ttl_s=store.handoff_ttl_s,
                connect_s=self._config.timeouts.connect_s,
                eviction=store.eviction,
                high_watermark=store.high_watermark,
                low_watermark=store.low_watermark,
                disk=DiskSettings(**store.disk.model_dump()) if store.disk is not None else None,
                tenant_weights={tenant_of(salt): weight for salt, weight in store.tenant_weights.items()},
            ),
            streams=store.streams,
            transport=store.transport,
            idle_exit_s=store.idle_exit_s,
            tls=tls_files(self._config.security),
        )

    def _info(self, chosen: ChosenEngine, engine: StartedEngine, kv: KvFingerprint, store_address: str) -> WorkerInfo:
        return WorkerInfo(
            replica_id=self._replica_id,
            role=self.role,
            node_id=ray.get_runtime_context().get_node_id(),
            zone=ray.get_runtime_context().get_node_labels().get(self._config.router.zone_label, ""),
            engine=chosen.kind,
            store_address=store_address,
            kv_fingerprint=kv.digest(),
            block_size_tokens=engine.block_size_tokens,
            max_model_len=engine.max_model_len,
            epoch=uuid.uuid4().hex,
            kv_blocks=engine.kv_blocks,
            model_identity=kv.model_identity(),
        )

    def _worker_settings(self, info: WorkerInfo, digest: str) -> WorkerSettings:
        timeouts = self._config.timeouts
        return WorkerSettings(
            info=info,
            secret=self._config.security.secret,
            model_fingerprint=digest,
            listen_host=self._host(),
            connection=ConnectionSettings.of(timeouts, tls_identity(self._config.security)),
            finish_s=timeouts.drain_finish_s,
            leave_s=leave_time_s(timeouts),
            health=PulseSettings(**self._config.health.model_dump()),
        )

    # What Serve and people ask

    def record_replica_metadata(self) -> dict[str, dict[str, str]]:
        """Called by Serve once, after `__init__`; gateways find the worker by it."""
        return {"baton": {"address": self._address, "replica_id": self._replica_id, "role": self.role}}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve where the number of replicas follows the load."""
        return report(self._worker.info, self._worker.load())

    async def reconfigure(self, user_config: dict[str, object]) -> None:
        """Called by Serve at the start and whenever a redeploy changes `user_config`. Raises for what is no such."""
        given = WorkerUserConfig.model_validate(user_config)
        self._worker.finish_s = given.drain_finish_s or self._config.timeouts.drain_finish_s

    async def check_health(self) -> None:
        """Called by Serve. Raises when the engine cannot step."""
        await self._worker.check_health()

    def status(self) -> dict[str, object]:
        """What this worker is and how busy it is, for `baton status` and tests."""
        load = self._worker.load()
        return {
            "replica_id": self._replica_id,
            "role": self._worker.role.role,
            "home": self.role,
            "pinned": self._worker.role.pinned,
            "role_history": list(self._worker.role.history),
            "pid": os.getpid(),
            "address": self._address,
            "store": self._worker.info.store_address,
            "live_legs": self._worker.live_legs,
            "finish_s": self._worker.finish_s,
            **{name: getattr(load, name) for name in load.__struct_fields__},
        }

    async def drain(self, replica_id: str, finish_s: float | None) -> None:
        """If it is this one: out of service, live streams may end for `finish_s`. For `baton drain`, which asks all.

        Serve would run what is not async in another thread than the worker's.
        """
        if replica_id == self._replica_id:
            self._worker.drain(finish_s)

    async def undrain(self, replica_id: str) -> None:
        """If it is this one: in service again."""
        if replica_id == self._replica_id:
            self._worker.undrain()

    async def lend(self, replica_id: str, role: Role, pinned: bool, why: str) -> None:
        """If it is this one: it does this from now on, and what runs finishes. For `baton pools`, which asks all."""
        if replica_id == self._replica_id:
            self._worker.role.lend(role, pinned, why)

    async def __del__(self) -> None:
        """Called by Serve when the replica is to end, and awaited up to `timeouts.drain_s`."""
        worker = getattr(self, "_worker", None)
        if worker is not None:
            await worker.leave()
            await worker.close()
        if self._lease is not None:
            self._lease.close()


class PrefillWorker(WorkerReplica):
    """Computes prompts."""

    role = "prefill"


class DecodeWorker(WorkerReplica):
    """Makes tokens."""

    role = "decode"


def leave_time_s(timeouts: TimeoutConfig) -> float:
    """How long a replica that ends waits for its streams: what Serve gives it, less what ending the engine takes."""
    return max(timeouts.drain_s - CLOSE_S, timeouts.drain_s / 2)
