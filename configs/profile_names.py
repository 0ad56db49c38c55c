"""What a profile can be called: one that comes with Baton, hardware and model (`h100x4/llama-3-70b`), or a file."""

import re
from dataclasses import dataclass
from typing import Final

from configs.hardware import ACCELERATORS
from configs.model_shapes import MODELS

SHIPPED: Final = ("laptop_cpu", "h100_8b", "simulated")
_ROOFLINE = re.compile(r"(?P<accelerator>[a-z0-9]+?)(?:x(?P<count>[1-9]\d?))?/(?P<model>[\w.-]+)")


@dataclass(frozen=True, slots=True)
class RooflineName:
    """A replica of `count` accelerators that share the model's weights (tensor parallel)."""

    accelerator: str
    count: int
    model: str

    def __str__(self) -> str:
        return f"{self.accelerator}{f'x{self.count}' if self.count > 1 else ''}/{self.model}"


def roofline_name(name: str) -> RooflineName | None:
    """The parts of such a name; None for any other."""
    found = _ROOFLINE.fullmatch(name)
    if found is None or found["accelerator"] not in ACCELERATORS or found["model"] not in MODELS:
        return None
    return RooflineName(found["accelerator"], int(found["count"] or 1), found["model"])


def is_file(name: str) -> bool:
    """Whether a profile is meant to be read from a file of the user's."""
    return name.endswith((".yaml", ".yml"))


def is_known(name: str) -> bool:
    """Whether there can be such a profile."""
    return name in SHIPPED or is_file(name) or roofline_name(name) is not None


def allowed() -> str:
    """For people."""
    return (
        f"{', '.join(SHIPPED)}; hardware and model, e.g. h100/llama-3-8b or h100x4/llama-3-70b, "
        f"of {', '.join(ACCELERATORS)} and {', '.join(MODELS)}; or a file as `baton profile show` prints one (.yaml)"
    )
