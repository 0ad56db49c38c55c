"""The remote protocol: the messages between two stores, over TCP, after the same greeting as on a node.

The destination connects. Frames are MessagePack with a length in front, as in `kvtransfer.protocol`. A *control*
connection carries any number of pulls, numbered by the destination; the bytes of blocks travel on *lanes*, further
connections of the same pair, from the source to the destination only, unless they are so few that to ask for them and
to wake a lane would take longer.

Destination          Source, on a control connection
`Open`           →   first
                 ←   `Session`, which lets lanes join
                 ←   `Memory`, before the first `Ready`, if blocks can be read without lanes
`Pull`           →
                 ←   `Announced`, as soon as the producer announces; at once for labels
                 ←   `Ready`, right behind it, for the first of the announced blocks, if they are committed
`Want`           →
                 ←   `Ready`, for wanted blocks that were not offered yet, as they are committed
`Take`           →   exactly one for each `Ready` without content, in order: what a lane is to bring. Who reads by
                     itself takes nothing when it has read
                 ←   `Ended`, always last, when everything taken is on its way; may come at any time. Who has all it
                     wanted does not wait for it
`Cancel`         →   at any time; nothing has to follow
`Alive`          ↔   by both, now and then: a side that hears nothing for `stall_s` gives the other up

Destination          Source, on a lane
`Join`           →   first
                 ←   `Payload` and the bytes of its blocks, back to back
"""

from typing import Literal

import msgspec

from kvtransfer.framing import BodyDecoder


class Join(msgspec.Struct, frozen=True, tag="join"):
    """This connection is a lane of a session."""

    session: bytes


class Open(msgspec.Struct, frozen=True, tag="open"):
    """This connection is a control connection."""


class Session(msgspec.Struct, frozen=True, tag="session"):
    """`session` is secret between the two: who knows it may join lanes."""

    session: bytes


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """Nothing else to say."""


class Pull(msgspec.Struct, frozen=True, tag="pull"):
    """Ask for blocks: those of a hand-off, or those with these labels, up to the first that cannot be read."""

    pull: int
    asked: str | list[int]
    deadline_s: float


class Want(msgspec.Struct, frozen=True, tag="want"):
    """Which of the announced blocks are missing here: ascending positions in `Announced.keys`."""

    pull: int
    positions: list[int]


class Take(msgspec.Struct, frozen=True, tag="take"):
    """Of the oldest `Ready` without an answer, send these; the source may let go of the others. `read_blocks`: how many
    were read by NIXL.
    """

    pull: int
    positions: list[int]
    read_blocks: int = 0


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The pull is not wanted any more. Unknown numbers are fine."""

    pull: int


class Announced(msgspec.Struct, frozen=True, tag="announced"):
    """The keys of what was asked for, in prompt order."""

    pull: int
    keys: list[bytes]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """These announced blocks are committed and stay until they are answered. `slots`: where, in the source's arena.

    Or their `content` comes with it, back to back: then nobody answers, and there are no slots.
    """

    pull: int
    positions: list[int]
    checksums: list[int]
    slots: list[int]
    content: bytes = b""


class Memory(msgspec.Struct, frozen=True, tag="memory"):
    """Blocks may also be read from the source's arena by NIXL: see `kvtransfer.transports.nixl.ArenaAccess`."""

    version: str
    agent: bytes
    base: int
    slots: int
    slot_bytes: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Nothing more comes for this pull but what was taken."""

    pull: int
    outcome: Literal["complete", "failed", "late"]
    reason: str = ""


class Payload(msgspec.Struct, frozen=True, tag="payload"):
    """The next bytes on the lane are these blocks of a pull, each of `block_bytes` bytes."""

    pull: int
    positions: list[int]
    block_bytes: int


FirstFromDestination = Open | Join
FromDestination = Pull | Want | Take | Cancel | Alive
FromSource = Session | Memory | Announced | Ready | Ended | Alive

encode = msgspec.msgpack.Encoder().encode
first_from_destination = BodyDecoder[FirstFromDestination](FirstFromDestination)
from_destination = BodyDecoder[FromDestination](FromDestination)
from_source = BodyDecoder[FromSource](FromSource)
payload = BodyDecoder[Payload](Payload)
