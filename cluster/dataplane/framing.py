"""Cuts a byte stream into frame bodies. Pure: bytes in, bodies out.

Owns the length prefix (unsigned 32-bit little-endian) and the bound on a frame's size. Invariant: between two calls
fewer bytes than one whole frame are kept, and each byte is copied at most twice, however a frame arrives.
"""

from cluster.errors import ProtocolViolation

PREFIX_BYTES = 4


class FrameSplitter:
    """The receiving half of one connection. Not usable after it raised. `max_frame_bytes` may be changed."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._rest = bytearray()
        self._wanted_bytes = PREFIX_BYTES

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not arrived whole."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[memoryview]:
        """The bodies that are whole now, in order; views that stay valid.

        Raises `ProtocolViolation` for a frame that claims to be longer than allowed.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted_bytes:
                return []
            data = bytes(self._rest)
            self._rest = bytearray()
        return self._cut(data)

    def _cut(self, data: bytes) -> list[memoryview]:
        bodies: list[memoryview] = []
        view, position, end = memoryview(data), 0, len(data)
        self._wanted_bytes = PREFIX_BYTES
        while end - position >= PREFIX_BYTES:
            size = int.from_bytes(view[position : position + PREFIX_BYTES], "little")
            if size > self.max_frame_bytes:
                raise ProtocolViolation(f"a frame of {size} bytes; at most {self.max_frame_bytes} are allowed")
            stop = position + PREFIX_BYTES + size
            if stop > end:
                self._wanted_bytes = PREFIX_BYTES + size
                break
            bodies.append(view[position + PREFIX_BYTES : stop])
            position = stop
        self._rest += view[position:]
        return bodies
