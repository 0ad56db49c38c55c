"""A KV store in a process of its own, without Ray: it ends when whoever started it closes it, or is gone."""

import asyncio
import multiprocessing
import signal
import uuid
from contextlib import suppress
from multiprocessing.connection import Connection

from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transports.tcp import TcpTransport

END_S = 5.0


class StoreProcess:
    """Reached at `socket_name` by processes here, and at `address` by other stores, over loopback."""

    def __init__(self, secret: bytes, fingerprint: str, arena_bytes: int, start_s: float) -> None:
        """Return when it answers. Raises `OSError` when it does not within `start_s`."""
        self.socket_name = f"baton-profile-{uuid.uuid4().hex}"
        self._pipe, theirs = multiprocessing.Pipe()
        settings = StoreSettings(arena_bytes, self.socket_name)
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(theirs, settings, secret, fingerprint), daemon=True)
        self._process.start()
        theirs.close()
        try:
            if not self._pipe.poll(start_s):
                raise OSError(f"it did not answer within {start_s:.0f} s")
            self.address: str = self._pipe.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise OSError(f"the KV store did not start: {error or 'its process ended'}") from None

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, settings: StoreSettings, secret: bytes, fingerprint: str) -> None:
    """Ctrl-C reaches this process too; ending it is its starter's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_run(pipe, settings, secret, fingerprint))


async def _run(pipe: Connection, settings: StoreSettings, secret: bytes, fingerprint: str) -> None:
    server = StoreServer(settings, secret, fingerprint, TcpTransport(secret, fingerprint, "127.0.0.1"))
    await server.start()
    try:
        pipe.send(server.address)
        with suppress(EOFError, OSError):
            await asyncio.to_thread(pipe.recv)
    finally:
        await server.close()
