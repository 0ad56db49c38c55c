"""What the connector counts, and how it reaches the process that owns the engine.

Totals only grow within one life of the engine. Beside them goes the verdict on each finished load, by leg, once: vLLM
carries both to the owner with its scheduler statistics, before the first token of a request that loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvtransfer.connector.plan import LoadVerdict


@dataclass(slots=True)
class Counters:
    """Owned by the scheduler side. Blocks and seconds."""

    saved_blocks: int = 0
    no_room_blocks: int = 0
    unsaved_blocks: int = 0  # a slot was reserved but could not be written
    loaded_blocks: int = 0
    corrupt_loads: int = 0
    failed_loads: int = 0
    store_lost: int = 0
    save_s: float = 0.0
    load_s: float = 0.0

    def to_dict(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in self.__slots__}


@dataclass(slots=True)
class Report:
    """What goes to the owner after a step."""

    counters: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, list[LoadVerdict]] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Plain form that survives any serialisation."""
        legs = {
            leg: [[v.loaded_blocks, v.recomputed_blocks, v.overcounted_blocks, v.reason] for v in verdicts]
            for leg, verdicts in self.verdicts.items()
        }
        return {"counters": self.counters, "legs": legs}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Report":
        """Inverse of `to_data`."""
        legs = {leg: [LoadVerdict(*verdict) for verdict in verdicts] for leg, verdicts in data["legs"].items()}
        return cls(dict(data["counters"]), legs)
