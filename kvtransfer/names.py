"""The names that workers give to blocks, both ways. Pure.

A name (an unsigned 64-bit label, opaque to the store) is kept as long as its block can be read. Invariant (`check`): a
label leads to a block that has it.
"""

from collections.abc import Iterable

from kvtransfer.transport import BlockKey


class BlockNames:
    """Which label a block has, and which block a label means."""

    def __init__(self) -> None:
        self._labels: dict[BlockKey, int] = {}
        self._keys: dict[int, BlockKey] = {}

    def give(self, key: BlockKey, label: int) -> bool:
        """Name a block. False when it has a name: the first stays."""
        if key in self._labels:
            return False
        self._labels[key] = label
        self._keys[label] = key
        return True

    def of(self, key: BlockKey) -> int | None:
        """The block's label, if it has one."""
        return self._labels.get(key)

    def keys(self, labels: Iterable[int]) -> list[BlockKey]:
        """The blocks with these labels, up to the first that no block has."""
        found = []
        for label in labels:
            key = self._keys.get(label)
            if key is None:
                break
            found.append(key)
        return found

    def forget(self, key: BlockKey) -> None:
        """The block cannot be read any more."""
        label = self._labels.pop(key, None)
        if label is not None and self._keys.get(label) == key:
            del self._keys[label]

    def named(self) -> set[BlockKey]:
        """Every block that has a name."""
        return set(self._labels)

    def check(self) -> None:
        """Assert the invariant: for tests."""
        assert all(self._labels[key] == label for label, key in self._keys.items())

    def __len__(self) -> int:
        return len(self._labels)
