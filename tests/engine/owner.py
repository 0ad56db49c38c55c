"""A process that owns an engine, to be killed: `python -m tests.engine.owner CORE`."""

import asyncio
import sys

from cluster.engines.vllm_engine import VllmEngine
from tests.contracts.engine_vllm import tiny_settings


async def main(core: int) -> None:
    """Say when the engine is ready, without any store, and stay."""
    engine = await VllmEngine.create(tiny_settings("no-such-store", b"", core))
    print("ready", flush=True)
    try:
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
