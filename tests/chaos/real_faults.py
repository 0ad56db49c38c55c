"""What may be done to a service with real engines, besides what `tests.chaos.faults` does to any.

A replica's engine is a process below it, vLLM's core, with a worker below that.
"""

import random
import signal
import time
from dataclasses import dataclass

import psutil

from tests.chaos.parts import Part, Parts
from tests.chaos.wires import wires


def cores(parts: Parts, pool: str) -> list[Part]:
    """The engine cores of a pool's replicas."""
    replicas = {replica.pid for replica in parts.of(pool)}
    return [core for core in parts.of("engine_core") if _parent(core.pid) in replicas]


@dataclass(frozen=True, slots=True)
class KillCore:
    """SIGKILL of the engine of one replica of a pool."""

    pool: str

    def strike(self, parts: Parts, rng: random.Random) -> str:
        victim = rng.choice(cores(parts, self.pool))
        victim.signal(signal.SIGKILL)
        victim.await_gone()
        return f"killed {victim} of a {self.pool} worker"


@dataclass(frozen=True, slots=True)
class StopCore:
    """SIGSTOP of the engine of one replica of a pool, for good: it is alive, and makes no step."""

    pool: str

    def strike(self, parts: Parts, rng: random.Random) -> str:
        victim = rng.choice(cores(parts, self.pool))
        victim.signal(signal.SIGSTOP)
        return f"stopped {victim} of a {self.pool} worker"


@dataclass(frozen=True, slots=True)
class StopReplica:
    """SIGSTOP of one replica of a pool, for good: its connections stay, and nobody answers."""

    pool: str

    def strike(self, parts: Parts, rng: random.Random) -> str:
        victim = rng.choice(parts.of(self.pool))
        victim.signal(signal.SIGSTOP)
        return f"stopped {victim}"


@dataclass(frozen=True, slots=True)
class SeverPool:
    """The connections between the gateways and one worker of a pool are cut."""

    pool: str

    def strike(self, parts: Parts, rng: random.Random) -> str:
        victim = rng.choice(parts.of(self.pool))
        cut = [wire for gateway in parts.of("gateway") for wire in wires(gateway.pid, victim.pid)]
        for wire in cut:
            wire.sever()
        return f"cut {len(cut)} connections to {victim}"


@dataclass(frozen=True, slots=True)
class SwapRoles:
    """The only prefill and the only decode worker take each other's role, and after `for_s` their own again.

    As with `baton pools lend --worker`: prefill is lent first, since somebody has to decode.
    """

    for_s: float

    def strike(self, parts: Parts, rng: random.Random) -> str:
        # Serve reads its flags when it is imported: not before a service runs.
        from cluster.cli.far_workers import FarRoles
        from cluster.cli.roles import lend_one

        roles = FarRoles()
        at_home = {view.home: view.replica_id for view in roles.views()}
        prefill, decode = at_home["prefill"], at_home["decode"]
        lend_one(roles, prefill, "decode", pinned=False)
        lend_one(roles, decode, "prefill", pinned=False)
        time.sleep(self.for_s)
        lend_one(roles, decode, "decode", pinned=False)
        lend_one(roles, prefill, "prefill", pinned=False)
        return f"{decode} prefilled and {prefill} decoded for {self.for_s:g} s"


def _parent(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).ppid())
    except psutil.NoSuchProcess:
        return None
