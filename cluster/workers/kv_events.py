"""What a worker's device holds, by router key: the engine's events in, changes for the gateways out. Pure.

Invariant (`check`): a key is held exactly while at least one engine hash with that key is. An engine may store one
hash several times (two physical blocks with the same content); it is gone with the last of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.engines.engine import BlocksChanged
from routing.block_keys import extend, root


@dataclass(slots=True)
class KvChange:
    """Keys that appeared and keys that disappeared; a key that did both is in neither."""

    stored: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.stored or self.removed)


@dataclass(slots=True)
class _Block:
    key: int
    copies: int


class DeviceBlocks:
    """The blocks on one device."""

    def __init__(self, block_size_tokens: int) -> None:
        self._block_size_tokens = block_size_tokens
        self._blocks: dict[bytes, _Block] = {}
        self._holders: dict[int, int] = {}
        self._unknown_parents = 0

    @property
    def unknown_parents(self) -> int:
        """Stored events that could not be placed, because they continue a block never heard of."""
        return self._unknown_parents

    def __len__(self) -> int:
        return len(self._holders)

    def snapshot(self) -> list[int]:
        """All keys held now."""
        return list(self._holders)

    def apply(self, events: Sequence[BlocksChanged]) -> KvChange:
        """The net change of held keys."""
        before: dict[int, bool] = {}
        for event in events:
            match event.kind:
                case "stored":
                    self._store(event, before)
                case "removed":
                    for block_hash in event.hashes:
                        self._remove(block_hash, before)
                case "cleared":
                    self._clear(before)
        change = KvChange()
        for key, was_held in before.items():
            is_held = key in self._holders
            if is_held and not was_held:
                change.stored.append(key)
            elif was_held and not is_held:
                change.removed.append(key)
        return change

    def _store(self, event: BlocksChanged, before: dict[int, bool]) -> None:
        if event.parent is None:
            parent_key = root(event.cache_salt, event.lora_name)
        elif event.parent in self._blocks:
            parent_key = self._blocks[event.parent].key
        else:
            self._unknown_parents += 1
            return
        keys = extend(parent_key, event.token_ids, self._block_size_tokens)
        for block_hash, key in zip(event.hashes, keys, strict=False):
            self._add(block_hash, key, before)

    def _add(self, block_hash: bytes, key: int, before: dict[int, bool]) -> None:
        block = self._blocks.get(block_hash)
        if block is not None:
            block.copies += 1
            return
        self._blocks[block_hash] = _Block(key, 1)
        before.setdefault(key, key in self._holders)
        self._holders[key] = self._holders.get(key, 0) + 1

    def _remove(self, block_hash: bytes, before: dict[int, bool]) -> None:
        block = self._blocks.get(block_hash)
        if block is None:
            return
        block.copies -= 1
        if block.copies == 0:
            del self._blocks[block_hash]
            self._drop_holder(block.key, before)

    def _drop_holder(self, key: int, before: dict[int, bool]) -> None:
        before.setdefault(key, True)
        self._holders[key] -= 1
        if self._holders[key] == 0:
            del self._holders[key]

    def _clear(self, before: dict[int, bool]) -> None:
        for key in self._holders:
            before.setdefault(key, True)
        self._blocks.clear()
        self._holders.clear()

    def check(self) -> None:
        """Assert the invariant."""
        holders: dict[int, int] = {}
        for block in self._blocks.values():
            assert block.copies > 0
            holders[block.key] = holders.get(block.key, 0) + 1
        assert holders == self._holders
