"""What may be done to a running service. Each fault picks its victim by chance and says what it did."""

import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.chaos.parts import Parts
from tests.chaos.wires import wires


class Fault(Protocol):
    """One kind of fault."""

    def strike(self, parts: Parts, rng: random.Random) -> str:
        """Do it once, and return when it is over; what was done, and to whom. May block for a while."""
        ...


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL of one process of a kind."""

    kind: str

    def strike(self, parts: Parts, rng: random.Random) -> str:
        victim = parts.any(self.kind, rng)
        if victim is None:
            return f"no {self.kind} is there to kill"
        victim.signal(signal.SIGKILL)
        victim.await_gone()
        return f"killed {victim}"


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP of one process of a kind, and SIGCONT after `seconds`."""

    kind: str
    seconds: float

    def strike(self, parts: Parts, rng: random.Random) -> str:
        victim = parts.any(self.kind, rng)
        if victim is None:
            return f"no {self.kind} is there to stop"
        victim.signal(signal.SIGSTOP)
        time.sleep(self.seconds)
        if not victim.alive:
            return f"stopped {victim}, which was gone before {self.seconds:g} s were over"
        victim.signal(signal.SIGCONT)
        return f"stopped {victim} for {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Sever:
    """One connection between a gateway and a worker is cut. A gateway opens no other connection to a worker."""

    def strike(self, parts: Parts, rng: random.Random) -> str:
        gateways, workers = parts.of("gateway"), parts.of("prefill", "decode")
        between = [(g, w, wire) for g in gateways for w in workers for wire in wires(g.pid, w.pid)]
        if not between:
            return "no connection is there to cut"
        gateway, worker, wire = rng.choice(between)
        wire.sever()
        return f"cut the connection of {gateway} to {worker}"


CATALOGUE: Mapping[str, Fault] = {
    "prefill": Kill("prefill"),
    "decode": Kill("decode"),
    "store": Kill("store"),
    "connection": Sever(),
    "controller": Kill("controller"),
    "stalled-decode": Stop("decode", 3.0),
    "stopped-prefill": Stop("prefill", 13.0),
    "stopped-decode": Stop("decode", 13.0),
    "stopped-store": Stop("store", 8.0),
    "stopped-controller": Stop("controller", 8.0),
    "haproxy": Kill("haproxy"),
}
"""By the names that a run is told. What is stopped is so for longer than others wait for it by default (`dead_s`,
`load_s`), what is stalled for less. Killing HAProxy cuts its clients' connections: no stream survives that.
"""

DEFAULT = ("prefill", "decode", "store", "connection", "controller")
"""Of which no client should notice anything but time."""
