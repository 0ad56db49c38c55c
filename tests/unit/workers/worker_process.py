"""A worker in a process of its own, to be killed: `python -m tests.unit.workers.worker_process MODEL SOCKET`."""

import asyncio
import sys
from pathlib import Path

from cluster.engines.simulated.engine import kv_fingerprint
from tests.support.store_thread import StoreThread
from tests.unit.workers.kv_fleet import Node, engine_settings, start_member


async def main(model: Path, socket_name: str) -> None:
    """Say where it listens, and stay."""
    store = StoreThread(kv_fingerprint(engine_settings(model)).digest())
    store.socket_name = socket_name
    member = await start_member("killed", Node("node 0", store), model, decode_step_s=0.05)
    print(member.address, flush=True)
    try:
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await member.worker.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
