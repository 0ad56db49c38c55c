"""The engine's connection to its node's KV store: there, or not there and being tried again every `retry_s` seconds."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from cluster.engines.simulated.settings import StoreAccess
from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.arena import Arena
from kvtransfer.errors import KvTransferError


@dataclass(frozen=True, slots=True)
class Attachment:
    """One life of the connection and the arena it maps."""

    client: AsyncStoreClient
    arena: Arena


class StoreLink:
    """`attachment` is None while the store is lost; whoever meets a failure gives it up with `lose`."""

    def __init__(self, access: StoreAccess, fingerprint: str, slot_bytes: int) -> None:
        self._access = access
        self._fingerprint = fingerprint
        self._slot_bytes = slot_bytes
        self.attachment: Attachment | None = None
        self.times_lost = 0

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

    async def lose(self, attachment: Attachment) -> None:
        """Give up a connection; the store then releases everything it held."""
        if self.attachment is attachment:
            self.attachment = None
        await attachment.client.close()

    async def keep(self) -> None:
        """Connect again whenever the connection is lost; runs until cancelled, then closes."""
        try:
            while True:
                if self.attachment is None:
                    await self._reconnect()
                else:
                    await self.attachment.client.until_lost()
                    self.attachment = None
                    self.times_lost += 1
        finally:
            if self.attachment is not None:
                await self.lose(self.attachment)

    async def _reconnect(self) -> None:
        await asyncio.sleep(self._access.retry_s)
        with suppress(KvTransferError, OSError, TimeoutError):
            await self.connect()
