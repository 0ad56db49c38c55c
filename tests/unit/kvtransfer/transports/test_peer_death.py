"""A source that is killed or stopped in the middle of a transfer: the pull ends in seconds, and nothing is held."""

import asyncio
import os
import signal
import sys
import time

import pytest

from kvtransfer.checksum import block_checksum
from kvtransfer.pulling import PullSink
from kvtransfer.settings import StoreSettings
from kvtransfer.store import Store
from kvtransfer.transport import HandoffState
from kvtransfer.transports.tcp import TcpTransport
from kvtransfer.transports.tcp_settings import TcpSettings
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, until

BLOCK_BYTES = 256 * 1024
KEYS = [bytes([i]) * 32 for i in range(64)]
THERE = 48
"""How many of them the source has; it never commits the others."""
STALL_S = 1.0


def make_store() -> Store:
    store = Store(StoreSettings(len(KEYS) * BLOCK_BYTES, "unused"))
    store.attach(BLOCK_BYTES)
    return store


async def be_the_source() -> None:
    """The other process."""
    store, transport = make_store(), TcpTransport(SECRET, FINGERPRINT, "127.0.0.1")
    owner = store.open_owner()
    store.announce(owner, "h", KEYS)
    assert store.arena is not None
    for key, slot in zip(KEYS[:THERE], store.reserve(owner, KEYS[:THERE]).slots, strict=True):
        assert slot is not None
        store.commit(owner, [key], [block_checksum(store.arena.slot(slot))])
    await transport.serve(store)
    print(transport.address, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await transport.close()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_source_that_is_killed_or_stopped_fails_the_pull_in_seconds(end: signal.Signals) -> None:
    store = make_store()
    transport = TcpTransport(SECRET, FINGERPRINT, "127.0.0.1", settings=TcpSettings(stall_s=STALL_S))
    sink = PullSink(store)
    module = __name__
    pipe = asyncio.subprocess.PIPE
    source = await asyncio.create_subprocess_exec(sys.executable, "-m", module, stdin=pipe, stdout=pipe)
    try:
        assert source.stdout is not None
        address = (await source.stdout.readline()).decode().strip()
        pull = asyncio.create_task(transport.pull(address, "h", sink, 60.0))
        await until(lambda: store.slot_statistics().committed_blocks > THERE // 4)
        os.kill(source.pid, end)
        began = time.monotonic()
        result = await pull
        assert time.monotonic() - began < 4 * STALL_S
    finally:
        if source.returncode is None:
            source.kill()
        await source.wait()
    assert result.state is HandoffState.FAILED
    assert THERE // 4 < result.received_blocks <= THERE
    sink.close()
    slots = store.slot_statistics()
    assert (slots.pins, slots.writing) == (0, 0)
    store.check()
    await transport.close()


if __name__ == "__main__":
    asyncio.run(be_the_source())
