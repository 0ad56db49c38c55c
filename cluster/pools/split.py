"""How many replicas have which role. A value."""

from dataclasses import dataclass

COMFORTABLE = 0.7
"""A role whose need is this share of its replicas has enough for what may come."""


@dataclass(frozen=True, slots=True)
class Split:
    """So many of each."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}P{self.decode}D"
