"""What a worker's device and its node's store hold, by router key: engine events and store changes in, changes for the
gateways out. Pure.

The engine tells tokens with its hashes, so a block's key is known from then on; the store knows hashes, and the keys
that workers gave it as labels. A translation is kept while its block is on the device or in the store, and for the
`max_idle_hashes` that left both last: news of the two come in any order. What is in the store but was neither labelled
by then nor ever on this device has no key here.

Invariant (`check`): a tier holds a key exactly while at least one of its hashes has that key. An engine may store one
hash several times (physical blocks with the same content); it is gone with the last of them.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from cluster.engines.engine import BlocksChanged
from cluster.workers.tier_keys import KvChange, TierKeys
from routing.block_keys import extend, root
from routing.index import Tier

MAX_IDLE_HASHES = 65_536


def idle_hashes(device_blocks: int) -> int:
    """How many translations a worker keeps of what is nowhere any more: as many as may leave its device at once, while
    the store's news of the same blocks are under way. 0 blocks: unknown.
    """
    return min(device_blocks or MAX_IDLE_HASHES, MAX_IDLE_HASHES)


@dataclass(frozen=True, slots=True)
class KvChanges:
    """The net change of each tier, and keys by hash that the store should keep for the next worker."""

    device: KvChange
    host: KvChange
    labels: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What of a request its blocks depend on."""

    token_ids: Sequence[int]
    salt: str | None = None
    lora: str | None = None


class KvBlocks:
    """The blocks of one device and, as far as that device ever held them, of its node's store."""

    def __init__(self, block_size_tokens: int, max_idle_hashes: int = MAX_IDLE_HASHES) -> None:
        self._block_size_tokens = block_size_tokens
        self._max_idle_hashes = max_idle_hashes
        self._keys: dict[bytes, int] = {}
        self._copies: dict[bytes, int] = {}
        self._in_store: set[bytes] = set()
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._tiers = {Tier.DEVICE: TierKeys(), Tier.HOST: TierKeys()}
        self._device, self._host = self._tiers[Tier.DEVICE], self._tiers[Tier.HOST]
        self._labels: dict[bytes, int] = {}
        self._unplaced = 0

    def __repr__(self) -> str:
        return f"<KvBlocks device={len(self._device)} host={len(self._host)} idle={len(self._idle)}>"

    @property
    def unplaced_events(self) -> int:
        """Stored events that have no key, in whole or in part: they continue a block never heard of, or their content
        is more than tokens, salt and LoRA name.
        """
        return self._unplaced

    def snapshot(self, tier: Tier) -> Collection[int]:
        """All keys a tier holds now. Not to be kept: it changes."""
        return self._tiers[tier].holders.keys()

    def keys(self, prompt: Prompt, start_tokens: int, end_tokens: int) -> Sequence[int]:
        """The keys of the whole blocks of a prompt in this range."""
        size = self._block_size_tokens
        return extend(root(prompt.salt, prompt.lora), prompt.token_ids[:end_tokens], size)[start_tokens // size :]

    def cached_tokens(self, prompt: Prompt, load_limit_tokens: int | None = None) -> int:
        """How many of a prompt's first tokens are in whole blocks that the engine need not compute."""
        size = self._block_size_tokens
        loadable = len(prompt.token_ids) if load_limit_tokens is None else load_limit_tokens
        keys = enumerate(self.keys(prompt, 0, len(prompt.token_ids)), start=1)
        cached = takewhile(lambda at: at[1] in self._device or (at[1] in self._host and at[0] * size <= loadable), keys)
        return sum(1 for _ in cached) * size

    # The device

    def apply(self, events: Sequence[BlocksChanged]) -> KvChanges:
        """The engine's events, in order."""
        for event in events:
            match event.kind:
                case "stored":
                    self._store(event)
                case "removed":
                    for block_hash in event.hashes:
                        self._remove(block_hash)
                case "cleared":
                    self._clear()
        return self._take()

    def _store(self, event: BlocksChanged) -> None:
        parent_key = root(event.cache_salt, event.lora_name) if event.parent is None else self._keys.get(event.parent)
        is_whole = len(event.token_ids) == len(event.hashes) * self._block_size_tokens
        self._unplaced += parent_key is None or not is_whole or event.inexpressible > 0
        if parent_key is None or not is_whole:
            return
        keys = extend(parent_key, event.token_ids, self._block_size_tokens)
        for block_hash, key in zip(event.hashes, keys, strict=True):
            self._add(block_hash, key)

    def _add(self, block_hash: bytes, key: int) -> None:
        copies = self._copies.get(block_hash, 0)
        self._copies[block_hash] = copies + 1
        if copies:
            return
        known = self._keys.get(block_hash)
        if known is None:
            known = self._keys[block_hash] = key
            if block_hash in self._in_store:
                self._host.add(key)
                self._labels[block_hash] = key
        else:
            self._idle.pop(block_hash, None)
        self._device.add(known)

    def _remove(self, block_hash: bytes) -> None:
        copies = self._copies.get(block_hash, 0)
        if copies > 1:
            self._copies[block_hash] = copies - 1
        elif copies:
            del self._copies[block_hash]
            self._device.remove(self._keys[block_hash])
            self._retire(block_hash)

    def _clear(self) -> None:
        copies, self._copies = self._copies, {}
        for block_hash in copies:
            self._device.remove(self._keys[block_hash])
            self._retire(block_hash)

    # The store

    def follow(self, snapshot: bool, committed: Mapping[bytes, int | None], gone: Iterable[bytes]) -> KvChanges:
        """What the store can give to read, in order, with the labels it has; with `snapshot` all before is void."""
        if snapshot:
            for block_hash in list(self._in_store):
                self._leave_store(block_hash)
        for block_hash, label in committed.items():
            self._enter_store(block_hash, label)
        for block_hash in gone:
            self._leave_store(block_hash)
        return self._take()

    def _enter_store(self, block_hash: bytes, label: int | None) -> None:
        key = self._keys.get(block_hash)
        if key is not None and label is None:
            self._labels[block_hash] = key
        if block_hash in self._in_store:
            return
        self._in_store.add(block_hash)
        if key is not None:
            self._idle.pop(block_hash, None)
        elif label is not None:
            key = self._keys[block_hash] = label
        if key is not None:
            self._host.add(key)

    def _leave_store(self, block_hash: bytes) -> None:
        if block_hash not in self._in_store:
            return
        self._in_store.remove(block_hash)
        self._labels.pop(block_hash, None)
        key = self._keys.get(block_hash)
        if key is not None:
            self._host.remove(key)
            self._retire(block_hash)

    # Both

    def _retire(self, block_hash: bytes) -> None:
        """The block has left one tier: if it is in neither now, its translation may be the next to be forgotten."""
        if block_hash in self._copies or block_hash in self._in_store:
            return
        self._idle[block_hash] = None
        if len(self._idle) > self._max_idle_hashes:
            oldest, _ = self._idle.popitem(last=False)
            del self._keys[oldest]

    def _take(self) -> KvChanges:
        labels, self._labels = self._labels, {}
        return KvChanges(self._device.take(), self._host.take(), labels)

    def check(self) -> None:
        """Assert the invariant, and that nothing is kept without a reason."""
        assert all(copies > 0 for copies in self._copies.values())
        assert self._device.holders == Counter(self._keys[block_hash] for block_hash in self._copies)
        assert self._host.holders == Counter(self._keys[h] for h in self._in_store if h in self._keys)
        assert self._idle.keys() == self._keys.keys() - self._copies.keys() - self._in_store
        assert len(self._idle) <= self._max_idle_hashes
