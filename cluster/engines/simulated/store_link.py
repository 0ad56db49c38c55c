"""The engine's connection to its node's KV store: there, or not there and being tried again once a second."""

import asyncio
from dataclasses import dataclass

from kvtransfer.aclient import AsyncStoreClient

from cluster.engines.simulated.settings import StoreAccess
from kvtransfer.arena import Arena
from kvtransfer.errors import KvTransferError

_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Attachment:
    """One life of the connection and the arena it maps."""

    client: AsyncStoreClient
    arena: Arena


class StoreLink:
    """`attachment` is None while the store is lost; whoever meets a failure calls `lose` and goes on without."""

    def __init__(self, access: StoreAccess, fingerprint: str, slot_bytes: int) -> None:
        self._access = access
        self._fingerprint = fingerprint
        self._slot_bytes = slot_bytes
        self._lost = asyncio.Event()
        self.attachment: Attachment | None = None

    @property
    def deadline_s(self) -> float:
        """How long one exchange with the store may take."""
        return self._access.load_s

    async def connect(self) -> None:
        """Connect and map the arena; raises `KvTransferError` or OSError."""
        access = self._access
        client = await AsyncStoreClient.connect(
            access.socket_name, self._fingerprint, access.name, access.secret, access.connect_s
        )
        try:
            self.attachment = Attachment(client, await client.attach(self._slot_bytes))
        finally:
            if self.attachment is None:
                await client.close()

    def lose(self, attachment: Attachment) -> None:
        """Give up a connection; the store then releases everything it held."""
        if self.attachment is attachment:
            self.attachment = None
            self._lost.set()

    async def keep(self) -> None:
        """Connect again whenever the connection is lost; runs until cancelled, then closes."""
        current = self.attachment
        try:
            while True:
                await self._lost.wait()
                self._lost.clear()
                await _close(current)
                current = await self._reconnect()
        finally:
            self.attachment = None
            await _close(current)

    async def _reconnect(self) -> Attachment | None:
        while self.attachment is None:
            await asyncio.sleep(_RETRY_S)
            try:
                await self.connect()
            except (KvTransferError, OSError, TimeoutError):
                continue
        return self.attachment


async def _close(attachment: Attachment | None) -> None:
    if attachment is not None:
        await attachment.client.close()
