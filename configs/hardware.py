"""Accelerators as their makers describe them: what the rooflines of `configs.roofline` are made of.

Dense bf16 without sparsity, decimal units. Sources: the data sheets of NVIDIA A100 80GB SXM (2022), H100 SXM (2023),
H200 SXM (2024), B200 in DGX B200 (2024), L40S (2023), L4 (2023), and of AMD MI300X (2023). `host_bytes_per_s` is the
bus to the host in one direction; `network_bytes_per_s` is the network card that systems of that kind usually have for
each accelerator: an assumption, to be replaced by what yours has.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Peak rates of one device."""

    about: str
    flop_per_s: float
    memory_bytes: float
    memory_bytes_per_s: float
    host_bytes_per_s: float
    network_bytes_per_s: float


ACCELERATORS: Final = {
    "l4": Accelerator("NVIDIA L4 24GB", 121e12, 24e9, 0.300e12, 32e9, 12.5e9),
    "l40s": Accelerator("NVIDIA L40S 48GB", 362e12, 48e9, 0.864e12, 32e9, 25e9),
    "a100": Accelerator("NVIDIA A100 SXM 80GB", 312e12, 80e9, 2.039e12, 32e9, 25e9),
    "h100": Accelerator("NVIDIA H100 SXM 80GB", 989e12, 80e9, 3.35e12, 64e9, 50e9),
    "h200": Accelerator("NVIDIA H200 SXM 141GB", 989e12, 141e9, 4.8e12, 64e9, 50e9),
    "b200": Accelerator("NVIDIA B200 180GB", 2250e12, 180e9, 8.0e12, 64e9, 50e9),
    "mi300x": Accelerator("AMD MI300X 192GB", 1307e12, 192e9, 5.3e12, 64e9, 50e9),
}
