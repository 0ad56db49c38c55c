"""How many replicas have which role. A value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """So many of each."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}P{self.decode}D"
