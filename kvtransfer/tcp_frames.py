"""The remote protocol: the messages between two stores, over TCP, after the same greeting as on a node.

The destination connects. Frames are MessagePack with a length in front, as in `kvtransfer.protocol`; the payload of a
`Block` follows its frame as raw bytes. One connection carries any number of pulls, numbered by the destination.

Destination          Source
`Pull`           →
                 ←   `Announced`, as soon as the producer announces; at once for labels
`Want`           →
                 ←   `Block` and payload, for each wanted block as it is committed
                 ←   `Ended`, always last; may come at any time
`Cancel`         →   at any time; nothing has to follow
"""

from typing import Literal

import msgspec


class Pull(msgspec.Struct, frozen=True, tag="pull"):
    """Ask for blocks: those of a hand-off, or those with these labels, up to the first that cannot be read."""

    pull: int
    asked: str | list[int]
    deadline_s: float


class Want(msgspec.Struct, frozen=True, tag="want"):
    """Which of the announced blocks are missing here: ascending positions in `Announced.keys`."""

    pull: int
    positions: list[int]


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The pull is not wanted any more. Unknown numbers are fine."""

    pull: int


class Announced(msgspec.Struct, frozen=True, tag="announced"):
    """The keys of what was asked for, in prompt order."""

    pull: int
    keys: list[bytes]


class Block(msgspec.Struct, frozen=True, tag="block"):
    """The wanted block at `position` is the next `payload_bytes` bytes on the connection."""

    pull: int
    position: int
    checksum: int
    payload_bytes: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Nothing more comes for this pull."""

    pull: int
    outcome: Literal["complete", "failed", "late"]
    reason: str = ""


FromDestination = Pull | Want | Cancel
FromSource = Announced | Block | Ended

encode = msgspec.msgpack.Encoder().encode
from_destination: msgspec.msgpack.Decoder[FromDestination] = msgspec.msgpack.Decoder(FromDestination)
from_source: msgspec.msgpack.Decoder[FromSource] = msgspec.msgpack.Decoder(FromSource)
