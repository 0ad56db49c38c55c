"""The scheduler side's connection to the node's store: it may break at any time and nobody above sees an exception.

A broken link answers as an empty and full store would: nothing found, no room. It is opened again on use, at most once
a second. `generation` counts the connections; whatever was reserved or pinned on an older one is gone.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvtransfer.client import StoreClient
from kvtransfer.connector.settings import ConnectorSettings
from kvtransfer.errors import RequestRefused, StoreLost
from kvtransfer.protocol import PinnedBlock, Reserved
from kvtransfer.tenant import Tenant
from kvtransfer.transport import BlockKey

RECONNECT_S = 1.0

log = logging.getLogger(__name__)


class StoreLink:
    """Owns one `StoreClient`, or none while the store is lost."""

    def __init__(self, settings: ConnectorSettings, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._client: StoreClient | None = None
        self._next_try_s = float("-inf")
        self.generation = 0
        self.losses = 0

    def epoch(self) -> str:
        """The store's life, after trying to connect if that is due; empty while it is lost."""
        client = self._connected()
        return client.epoch if client is not None else ""

    def reserve(self, keys: Sequence[BlockKey], tenant: Tenant) -> Reserved:
        nothing = Reserved(id=0, slots=[None] * len(keys), full=0)
        answer: Reserved = self._ask(lambda client: client.reserve(keys, tenant), nothing)
        return answer

    def commit(self, keys: Sequence[BlockKey], checksums: Sequence[int]) -> None:
        self._ask(lambda client: client.commit(keys, checksums))

    def abandon(self, keys: Sequence[BlockKey]) -> None:
        self._ask(lambda client: client.abandon(keys))

    def announce(self, handoff_id: str, keys: Sequence[BlockKey]) -> None:
        self._ask(lambda client: client.announce(handoff_id, keys))

    def conclude(self, handoff_id: str) -> None:
        self._ask(lambda client: client.conclude(handoff_id))

    def pin(self, keys: Sequence[BlockKey]) -> Sequence[PinnedBlock]:
        pinned: Sequence[PinnedBlock] = self._ask(lambda client: client.pin(keys), ())
        return pinned

    def unpin(self, keys: Sequence[BlockKey], generation: int) -> None:
        """Drop pins taken in `generation`; nothing to do when that connection is gone."""
        if generation == self.generation:
            self._ask(lambda client: client.unpin(keys))

    def distrust(self, keys: Sequence[BlockKey]) -> None:
        self._ask(lambda client: client.distrust(keys))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ask(self, question: Callable[[StoreClient], Any], otherwise: Any = None) -> Any:
        """The store's answer, or `otherwise` when it is lost or refuses."""
        client = self._connected()
        if client is None:
            return otherwise
        try:
            return question(client)
        except StoreLost as loss:
            self._lose(loss)
        except RequestRefused as refused:
            log.error("the KV store refused a request: %s", refused)
        return otherwise

    def _connected(self) -> StoreClient | None:
        if self._client is None and self._now() >= self._next_try_s:
            self._next_try_s = self._now() + RECONNECT_S
            self._client = self._open()
        return self._client

    def _open(self) -> StoreClient | None:
        settings = self._settings
        try:
            client = StoreClient.connect(
                settings.socket_name, settings.fingerprint, "connector/scheduler", settings.secret, settings.timeout_s
            )
            client.attach(settings.layout.slot_bytes, settings.layout.seal).close()  # only settles what a slot is
        except (StoreLost, RequestRefused) as loss:
            log.warning("the KV store is out of reach, going on without: %s", loss)
            return None
        self.generation += 1
        return client

    def _lose(self, loss: StoreLost) -> None:
        log.warning("the KV store is lost, going on without: %s", loss)
        self.losses += 1
        self.close()
