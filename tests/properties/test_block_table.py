"""The block table against a naive model: a dict of references and a list of cached contents."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cluster.engines.simulated.block_table import BlockTable, OutOfBlocks

BLOCKS = 6
KEYS = st.sampled_from([bytes([key]) for key in range(8)])


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = BlockTable(BLOCKS)
        self.references: dict[int, int] = {}  # held block -> references
        self.contents: dict[int, bytes] = {}  # cached block -> content
        self.idle: list[int] = []  # oldest first

    @rule(count=st.integers(0, 4))
    def allocate(self, count: int) -> None:
        free = BLOCKS - len(self.references) - len(self.idle)
        if count > free + len(self.idle):
            with pytest.raises(OutOfBlocks):
                self.table.allocate(count)
            return
        expected_evictions = self.idle[: max(0, count - free)]
        blocks = self.table.allocate(count)
        assert len(set(blocks)) == count
        assert not set(blocks) & set(self.references)
        assert self.table.drain_evicted() == [self.contents[block] for block in expected_evictions]
        for block in expected_evictions:
            del self.contents[block]
        self.idle = self.idle[len(expected_evictions) :]
        self.references |= dict.fromkeys(blocks, 1)

    @precondition(lambda self: any(block not in self.contents for block in self.references))
    @rule(data=st.data(), key=KEYS)
    def publish(self, data: st.DataObject, key: bytes) -> None:
        block = data.draw(st.sampled_from([block for block in self.references if block not in self.contents]))
        stored = self.table.publish(block, key)
        assert stored == (key not in self.contents.values())
        if stored:
            self.contents[block] = key

    @rule(keys=st.lists(KEYS, max_size=4, unique=True))
    def take_prefix(self, keys: list[bytes]) -> None:
        block_of = {key: block for block, key in self.contents.items()}
        expected = []
        for key in keys:
            if key not in block_of:
                break
            expected.append(block_of[key])
        assert self.table.take_prefix(keys) == expected
        for block in expected:
            self.references[block] = self.references.get(block, 0) + 1
            if block in self.idle:
                self.idle.remove(block)

    @precondition(lambda self: self.references)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        blocks = data.draw(st.lists(st.sampled_from(sorted(self.references)), unique=True, min_size=1))
        self.table.release(blocks)
        for block in reversed(blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                del self.references[block]
                if block in self.contents:
                    self.idle.append(block)

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.contents.clear()
        self.idle.clear()

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.table.check()
        assert self.table.held == len(self.references)
        assert self.table.available == BLOCKS - len(self.references)


TestBlockTable = TableMachine.TestCase
TestBlockTable.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
