"""The seam between the fuzzer of frames and what it attacks."""

import random
from typing import Protocol


class Victim(Protocol):
    """One end of one protocol, running in this process, with a witness: a well-behaved peer that is connected all the
    time.
    """

    name: str

    async def attack(self, rng: random.Random) -> int:
        """One hostile connection or answer from beginning to end; how many frames it sent."""
        ...

    async def witness(self) -> list[str]:
        """What the witness found wrong: it asks for something that it must get."""
        ...

    def left(self) -> dict[str, object]:
        """What is held now and should not be, by what it is; empty at rest. Raises AssertionError for broken books."""
        ...
