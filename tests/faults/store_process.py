"""A store in a process of its own, to be killed, stopped and started again under the same name."""

import asyncio
import json
import os
import signal
import sys
import uuid
from asyncio.subprocess import PIPE, Process
from dataclasses import asdict

from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transport import Transport
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.support.store_thread import SECRET, START_S

STALL_S = 1.0
"""A peer that is silent for so long is given up."""


def over_quick_tcp(fingerprint: str) -> Transport:
    """Reaches every store of this machine, and gives one up that is silent."""
    return TcpTransport(SECRET, fingerprint, "127.0.0.1", settings=TcpSettings(stall_s=STALL_S))


class StoreProcess:
    """See `tests.support.store_thread.StoreThread`. A store that was killed comes back empty."""

    def __init__(self, fingerprint: str, arena_bytes: int = 64 * 1024 * 1024) -> None:
        self.fingerprint = fingerprint
        self.socket_name = f"baton-test-{uuid.uuid4().hex}"
        self._settings = StoreSettings(arena_bytes, self.socket_name)
        self._process: Process | None = None

    async def start(self) -> None:
        """Return when the store answers."""
        program = (sys.executable, "-m", "tests.faults.store_process", self.fingerprint)
        told = json.dumps(asdict(self._settings))
        self._process = await asyncio.create_subprocess_exec(*program, told, stdin=PIPE, stdout=PIPE)
        assert self._process.stdout is not None
        async with asyncio.timeout(4 * START_S):
            assert await self._process.stdout.readline() == b"ready\n"

    def signal(self, number: signal.Signals) -> None:
        """Stop it, or let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """Return when the process is gone, however often it is asked."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def main(fingerprint: str, settings: str) -> None:
    """Serve until whoever started this is gone."""
    server = StoreServer(StoreSettings(**json.loads(settings)), SECRET, fingerprint, over_quick_tcp(fingerprint))
    await server.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
