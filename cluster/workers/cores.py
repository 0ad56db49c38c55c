"""CPU cores that one replica has to itself, among all replicas of a host, whichever Ray or container started them.

A core is leased by binding an abstract Unix socket named after it: the kernel gives it back when the process dies,
however it dies, and no child keeps it (closed on exec, and after a fork in the child).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from types import TracebackType

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""How long a predecessor that is just dying may keep its cores."""

RETRY_S = 0.25


class CoreLease:
    """Holds `cores` until closed. `shared` ones are not exclusive: there were not enough."""

    def __init__(self, exclusive: dict[int, socket.socket], shared: Sequence[int] = ()) -> None:
        self._sockets = exclusive
        self.shared = tuple(shared)
        os.register_at_fork(after_in_child=self.close)

    def __repr__(self) -> str:
        return f"<CoreLease exclusive={sorted(self._sockets)} shared={list(self.shared)}>"

    @property
    def cores(self) -> list[int]:
        """Core numbers, ascending."""
        return sorted([*self._sockets, *self.shared])

    @classmethod
    async def take(cls, count: int, patience_s: float = PATIENCE_S) -> "CoreLease":
        """`count` cores of those this process may use; after `patience_s` seconds, shared ones make up what is missing.

        Raises `ValueError` when the process may not use that many at all.
        """
        allowed = sorted(os.sched_getaffinity(0))
        if count > len(allowed):
            raise ValueError(f"`cores: {count}` asks for more than the {len(allowed)} cores this process may use")
        held: dict[int, socket.socket] = {}
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            _bind_free(allowed, count, held)
            if len(held) == count:
                return cls(held)
            if asyncio.get_running_loop().time() >= deadline:
                return cls._sharing(allowed, count, held)
            await asyncio.sleep(RETRY_S)

    @classmethod
    def _sharing(cls, allowed: Sequence[int], count: int, held: dict[int, socket.socket]) -> "CoreLease":
        others = [core for core in allowed if core not in held]
        first = os.getpid() % len(others)
        shared = (others[first:] + others[:first])[: count - len(held)]
        log.warning(
            "every core is taken: sharing cores %s with other replicas; lower `cores` or `replicas` of the pools",
            shared,
        )
        return cls(held, shared)

    def close(self) -> None:
        """Give the cores back."""
        sockets, self._sockets = self._sockets, {}
        for held in sockets.values():
            held.close()

    def __enter__(self) -> "CoreLease":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bind_free(allowed: Sequence[int], count: int, held: dict[int, socket.socket]) -> None:
    for core in allowed:
        if len(held) == count:
            return
        if core not in held and (bound := _bind(core)) is not None:
            held[core] = bound


def _bind(core: int) -> socket.socket | None:
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        name.bind(f"\0baton-core-{core}")
    except OSError:
        name.close()
        return None
    return name
