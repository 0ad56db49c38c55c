"""The bounds of the TCP transport, and whether it speaks TLS."""

from dataclasses import dataclass

from kvtransfer.framing import DEFAULT_MAX_FRAME_BYTES
from kvtransfer.tls import Identity


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """What the transport's owner rarely changes. Buffers of 256 KiB are the fastest measured."""

    connect_s: float = 5.0  # to connect and greet
    stall_s: float = 5.0  # a peer that is silent, or moves no byte in the middle of something, for so long is given up
    quiesce_s: float = 0.5  # a pull that ends waits this long for the blocks that are just arriving
    max_deadline_s: float = 3_600.0  # the longest a peer may ask us to wait
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_pulls: int = 8_192  # of one connection at once
    max_connections: int = 4_096  # accepted
    max_lanes: int = 16  # of one session
    socket_buffer_bytes: int = 256 * 1024
    in_band_bytes: int = 64 * 1024  # blocks that are ready together and are no more come with the word that they are
    tls: Identity | None = None  # None: in the clear, for networks that nobody else is on

    @property
    def beat_s(self) -> float:
        """How often a side says that it is alive."""
        return self.stall_s / 4
