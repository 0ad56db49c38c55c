"""What our connector costs a decoding engine while no blocks move: decode tokens/s with it against without it.

Two engines with the same arguments are up at once, pinned to the same core, and take turns: one decodes a batch while
the other is idle. The order changes from round to round. The store runs outside both, as on a node.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.models.fetch import resolve
from kvtransfer.server import StoreServer
from kvtransfer.settings import StoreSettings
from kvtransfer.transports.loopback import LoopbackNetwork
from tests.benchmarks import machine
from tests.benchmarks.spread import ratios, spread

ARENA_BYTES = 256 * 1024 * 1024
START_DEADLINE_S = 300.0
END_DEADLINE_S = 20.0
ROUND_DEADLINE_S = 120.0
REST_S = 1.0
LAST_LINES = 20


@dataclass(frozen=True, slots=True)
class Round:
    """One batch on one engine."""

    tokens: int
    decode_s: float
    cpu_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.decode_s


class EngineProcess:
    """An engine of `tests.benchmarks.decode_engine`, spoken to in JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        await self._process.stdin.drain()

    async def hear(self, timeout_s: float) -> dict[str, Any]:
        """Its next JSON line; vLLM prints others in between."""
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout_s):
            while line := await self._process.stdout.readline():
                if line.startswith(b"{"):
                    return dict(json.loads(line))
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        raise RuntimeError(f"an engine ended\n{tail}")

    async def round(self) -> Round:
        """One batch."""
        await self.tell()
        return Round(**await self.hear(ROUND_DEADLINE_S))


@asynccontextmanager
async def engine(kind: str, options: argparse.Namespace, log: Path, *more: str) -> AsyncIterator[EngineProcess]:
    """A process that is gone afterwards, and its children with it."""
    arguments = ["--kind", kind, "--model", options.path, "--core", str(options.core)]
    arguments += ["--streams", str(options.streams), "--tokens", str(options.tokens), *more]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.benchmarks.decode_engine", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield EngineProcess(process, log)
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Close its input, upon which it ends in order; if it does not, end it and its children by force."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(END_DEADLINE_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # vLLM's core outlives its parent
        await process.wait()


@asynccontextmanager
async def store(socket_name: str, secret: bytes, fingerprint: str) -> AsyncIterator[None]:
    """A node's store, in this process, which has nothing else to do."""
    settings = StoreSettings(arena_bytes=ARENA_BYTES, socket_name=socket_name)
    server = StoreServer(settings, secret, fingerprint, LoopbackNetwork().open())
    await server.start()
    try:
        yield
    finally:
        await server.close()


async def measure(options: argparse.Namespace) -> dict[str, list[Round]]:
    """Start both, let them take turns."""
    socket_name, secret = f"baton-bench-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    async with AsyncExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-connector-")))
        say("starting the plain engine")
        plain = await stack.enter_async_context(engine("plain", options, logs / "plain"))
        await plain.hear(START_DEADLINE_S)
        say("starting the engine with the connector")
        more = ("--store-socket", socket_name, "--secret", secret)
        ours = await stack.enter_async_context(engine("baton", options, logs / "baton", *more))
        fingerprint = (await ours.hear(START_DEADLINE_S))["fingerprint"]
        await stack.enter_async_context(store(socket_name, secret.encode(), fingerprint))
        await ours.tell()
        await ours.hear(START_DEADLINE_S)
        return await take_turns({"plain": plain, "baton": ours}, options.rounds)


async def take_turns(engines: dict[str, EngineProcess], rounds: int) -> dict[str, list[Round]]:
    """Each engine once in each round, first one first, then the other."""
    measured: dict[str, list[Round]] = {name: [] for name in engines}
    for number in range(rounds):
        for name in list(engines)[:: 1 if number % 2 == 0 else -1]:
            await asyncio.sleep(REST_S)  # the engine that has just stopped polls a little longer
            one = await engines[name].round()
            measured[name].append(one)
            say(f"round {number + 1}/{rounds} {name}: {one.tokens_per_s:.1f} tokens/s, {one.cpu_s:.2f} s of CPU")
    return measured


def report(measured: dict[str, list[Round]], options: argparse.Namespace) -> str:
    """Figures with their spread."""
    lines = [
        machine.describe(),
        f"model {options.model}, {options.streams} streams, {options.tokens} tokens each, core {options.core}",
    ]
    for name, rounds in measured.items():
        per_token = spread([1e3 * r.cpu_s / r.tokens for r in rounds])
        lines.append(
            f"  {name}: {spread([r.tokens_per_s for r in rounds])} decode tokens/s, {per_token} ms of CPU a token, "
            f"n {len(rounds)} x {rounds[0].tokens} tokens"
        )
    speeds = {name: [r.tokens_per_s for r in rounds] for name, rounds in measured.items()}
    costs = {name: [r.cpu_s / r.tokens for r in rounds] for name, rounds in measured.items()}
    lines.append(f"  with the connector / without: {ratios(speeds['baton'], speeds['plain'])} (goal: at least 0.98)")
    lines.append(f"  CPU a token, with / without: {ratios(costs['baton'], costs['plain'])}")
    return "\n".join(lines)


def say(line: str) -> None:
    """Progress; the report alone goes to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--core", type=int, default=1, help="both engines compute on this core")
    options = parser.parse_args()
    options.path = resolve(options.model)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engines are ended
    print(report(asyncio.run(measure(options)), options))


if __name__ == "__main__":
    main()
