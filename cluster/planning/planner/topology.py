"""How many workers of each kind."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Topology:
    """`prefill` workers that compute prompts and `decode` workers; without the former, the latter do everything."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}P:{self.decode}D" if self.prefill else f"{self.decode} aggregated"

    @property
    def replicas(self) -> int:
        """All of them."""
        return self.prefill + self.decode


def topologies(replicas: int) -> list[Topology]:
    """All ways to divide so many, aggregated first."""
    return [Topology(prefill, replicas - prefill) for prefill in range(replicas)]
