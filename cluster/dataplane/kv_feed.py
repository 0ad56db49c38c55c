"""What one gateway has yet to hear about the blocks of a worker, tier by tier. Pure.

Invariant: the frames of a tier, in order, add up to what it holds as soon as nothing waits. What waits is bounded; see
`kvtransfer.net_changes`.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial

from cluster.dataplane.frames import KV_TIERS, KvEvents, KvTier
from cluster.dataplane.wire_keys import pack_keys
from kvtransfer.net_changes import MAX_TAKEN_KEYS, MAX_WAITING_KEYS, NetChanges

KvSnapshot = Callable[[KvTier], Collection[int]]
"""All keys that a tier holds now."""


class KvFeed:
    """The events of one connection."""

    def __init__(
        self,
        snapshot: KvSnapshot,
        max_pending_keys: int = MAX_WAITING_KEYS,
        max_frame_keys: int = MAX_TAKEN_KEYS,
    ) -> None:
        self._tiers: dict[KvTier, NetChanges[int]] = {
            tier: NetChanges(partial(snapshot, tier), max_pending_keys, max_frame_keys) for tier in KV_TIERS
        }
        self._turn = list(KV_TIERS)
        self._sequence = 0

    @property
    def waiting(self) -> bool:
        """Whether the gateway does not know everything."""
        return any(changes.waiting for changes in self._tiers.values())

    def change(self, tier: KvTier, stored: Iterable[int], removed: Iterable[int]) -> None:
        """These keys appeared and then those disappeared; a key alternates between the two over time."""
        changes = self._tiers[tier]
        for key in stored:
            changes.note(key, True)
        for key in removed:
            changes.note(key, False)

    def take(self) -> KvEvents | None:
        """The next frame, the tiers taking turns; None when the gateway knows everything."""
        for tier in self._turn:
            change = self._tiers[tier].take()
            if change is not None:
                self._turn.remove(tier)
                self._turn.append(tier)
                sequence, self._sequence = self._sequence, self._sequence + 1
                return KvEvents(sequence, tier, change.snapshot, pack_keys(change.appeared), pack_keys(change.gone))
        return None
