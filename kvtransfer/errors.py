"""What can go wrong between a process and its node's store.

KvTransferError
├── StoreLost           the connection is gone; the client object is dead, connect again
│   └── StoreRefused    the store would not let us in: connecting again as we are is pointless
├── RequestRefused      the store would not carry out one request; the connection stays open
├── TornFile            a block's file is not whole: it is dropped
├── NeverAnnounced      a hand-off has no blocks to wait for
└── FramingError        the peer sent what is not a frame; the connection must be closed
    ├── FrameTooLarge
    ├── FrameTruncated
    └── FrameInvalid
"""


class KvTransferError(Exception):
    """Base of this package's errors."""


class StoreLost(KvTransferError):
    """The connection to the store broke, timed out or was closed. Everything it held is released by the store."""


class StoreRefused(StoreLost):
    """The store refused the greeting or closed the connection with a reason."""


class RequestRefused(KvTransferError):
    """The request cannot be carried out as it is."""


class TornFile(KvTransferError):
    """A file that should hold a block does not: cut off, damaged, or another block's."""


class FramingError(KvTransferError):
    """The bytes are no frames of this protocol."""


class FrameTooLarge(FramingError):
    """A frame announces more bytes than allowed."""

    def __init__(self, frame_bytes: int, max_frame_bytes: int) -> None:
        super().__init__(f"frame of {frame_bytes} bytes exceeds the maximum of {max_frame_bytes} bytes")


class FrameTruncated(FramingError):
    """The connection ended inside a frame."""

    def __init__(self) -> None:
        super().__init__("connection ended inside a frame")


class FrameInvalid(FramingError):
    """A whole frame, whose body is no message of this protocol."""


class NeverAnnounced(KvTransferError):
    """The producer is done and has not said which blocks the hand-off has."""
