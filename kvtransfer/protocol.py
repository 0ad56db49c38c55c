"""The local protocol of a node's KV store: the messages between the store and the processes of its node.

Messages are MessagePack maps with a `type`, each preceded by its length as an unsigned 32-bit little-endian integer.
Bytes of blocks never travel here: the arena is shared memory, handed over once as a file descriptor with `Attached`.
A closed connection releases everything it held: slots being written, pins, hand-offs it produced.

After the greeting (`kvtransfer.greeting`) come requests, each with an `id` the reply repeats. `AwaitHandoff`, `Fetch`,
`Watch`, `Pin` and `Verify` are the only requests whose replies may be late, so others may overtake them.
"""

from typing import Literal

import msgspec

from kvtransfer.inspection import Drop, Dropped, ListSlots, SlotPage, Statistics, StoreStatistics, Verified, Verify
from kvtransfer.seal import Seal

HandoffOutcome = Literal["ready", "failed", "late"]

# Requests


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Map the arena. The first to attach decides the slot size; another size is an error. The first that says how it
    makes checksums (`seal`) says it for all.

    Reply: `Attached`, with the arena's file descriptor as SCM_RIGHTS on the same message.
    """

    id: int
    slot_bytes: int
    seal: Seal | None = None


class Reserve(msgspec.Struct, frozen=True, tag="reserve"):
    """Ask for slots to write blocks into. Reply: `Reserved`.

    `tenant` says whose blocks they are: a digest of the cache salt (`kvtransfer.tenant`), empty without one.
    """

    id: int
    keys: list[bytes]
    tenant: bytes = b""


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """The slots reserved on this connection for these keys hold whole blocks now. Reply: `Done` (count committed)."""

    id: int
    keys: list[bytes]
    checksums: list[int]


class Abandon(msgspec.Struct, frozen=True, tag="abandon"):
    """The slots reserved on this connection for these keys will not be written. Reply: `Done`."""

    id: int
    keys: list[bytes]


class Announce(msgspec.Struct, frozen=True, tag="announce"):
    """A producer names the blocks of a hand-off, in prompt order. Reply: `Done`."""

    id: int
    handoff_id: str
    keys: list[bytes]


class Conclude(msgspec.Struct, frozen=True, tag="conclude"):
    """The producer has nothing more to commit for this hand-off: what is missing now will not come. Reply: `Done`.

    One that was never announced fails, now and for whoever asks for it later.
    """

    id: int
    handoff_id: str


class AwaitHandoff(msgspec.Struct, frozen=True, tag="await_handoff"):
    """Wait until a hand-off's blocks are in this store; `source` is the other store's address, or None for this node.

    Its blocks stay pinned for this connection until `Release`. Reply: `HandoffEnded`, at the latest after
    `deadline_s`.
    """

    id: int
    handoff_id: str
    source: str | None
    deadline_s: float
    tenant: bytes = b""  # whose blocks they are


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """Bring blocks of a prompt from the store at `source`, which nobody hands over: those with `labels`, in prompt
    order, up to the first that it cannot read.

    `handoff_id` is a new name, under which what is here stays pinned for this connection until `Release`. Reply:
    `HandoffEnded`, at the latest after `deadline_s`; the source's blocks are the announced ones.
    """

    id: int
    handoff_id: str
    labels: list[int]
    source: str
    deadline_s: float
    tenant: bytes = b""  # whose blocks they are


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Stop waiting for a hand-off or a fetch and drop its pins; unless others wait, nobody comes for it. Unknown ids
    are fine.

    Reply: `Done`, with the count of pins dropped.
    """

    id: int
    handoff_id: str


class Pin(msgspec.Struct, frozen=True, tag="pin"):
    """Pin the longest readable prefix of `keys` for reading. Reply: `Pinned`, late when blocks come from disk."""

    id: int
    keys: list[bytes]


class Unpin(msgspec.Struct, frozen=True, tag="unpin"):
    """Drop one pin of each key, held by this connection. Reply: `Done`."""

    id: int
    keys: list[bytes]


class Distrust(msgspec.Struct, frozen=True, tag="distrust"):
    """These blocks failed their checksum: forget them as soon as nobody reads them. Reply: `Done`."""

    id: int
    keys: list[bytes]


class Label(msgspec.Struct, frozen=True, tag="label"):
    """Keep these names (unsigned 64-bit, opaque to the store) with readable blocks, for those who watch and those who
    fetch. The first name of a block stays. Reply: `Done`, with the count of blocks that got theirs.
    """

    id: int
    keys: list[bytes]
    labels: list[int]


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Follow which blocks can be read. Reply: `Watched`, as soon as something has changed, after `wait_s` in any case.

    The first of a connection is answered with a snapshot, and so is one with `start_over`; each later one goes on
    where the last reply ended. One at a time: a second fails the first.
    """

    id: int
    start_over: bool
    wait_s: float


Request = (
    Attach
    | Reserve
    | Commit
    | Abandon
    | Announce
    | Conclude
    | AwaitHandoff
    | Fetch
    | Release
    | Pin
    | Unpin
    | Distrust
    | Statistics
    | Label
    | Watch
    | ListSlots
    | Drop
    | Verify
)

# Replies


class Attached(msgspec.Struct, frozen=True, tag="attached"):
    """The arena: `slots` slots of `slot_bytes` bytes, back to back from offset 0."""

    id: int
    slots: int
    slot_bytes: int


class Reserved(msgspec.Struct, frozen=True, tag="reserved"):
    """For each key, in order: the slot to write, or None when the block is already here, being written, or has no
    room.

    `full` is the number of keys for which there was no room.
    """

    id: int
    slots: list[int | None]
    full: int


class PinnedBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block that may be read until it is unpinned."""

    slot: int
    checksum: int


class Pinned(msgspec.Struct, frozen=True, tag="pinned"):
    """The pinned prefix: one entry for each of the first `len(blocks)` keys asked for."""

    id: int
    blocks: list[PinnedBlock]


class HandoffEnded(msgspec.Struct, frozen=True, tag="handoff_ended"):
    """How a wait ended. `present_blocks` of `announced_blocks` can be read now; `pulled_*` came over the network."""

    id: int
    outcome: HandoffOutcome
    announced_blocks: int
    present_blocks: int
    pulled_blocks: int
    pulled_bytes: int
    waited_s: float
    reason: str = ""


class Watched(msgspec.Struct, frozen=True, tag="watched"):
    """Blocks that can be read since the last reply, and blocks that cannot any more; no key is in both.

    `labels` are the names the committed blocks have by now, in the same order; a block that went and came back in the
    meantime is committed once more, for its name went with it. With `snapshot` all that was known before is void. A
    long snapshot goes on in replies that come at once.
    """

    id: int
    snapshot: bool
    committed: list[bytes]
    labels: list[int | None]
    gone: list[bytes]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out for `count` of its items."""

    id: int
    count: int = 0


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request was refused; the connection stays open."""

    id: int
    reason: str


Reply = (
    Attached
    | Reserved
    | Pinned
    | HandoffEnded
    | Watched
    | StoreStatistics
    | SlotPage
    | Dropped
    | Verified
    | Done
    | Failed
)
