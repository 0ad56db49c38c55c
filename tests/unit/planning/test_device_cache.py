"""The device's cache against a naive model."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cluster.planning.device_cache import DeviceCache
from routing.packed_keys import pack

BLOCKS = 8


class CacheMachine(RuleBasedStateMachine):
    """Chains of keys are taken, published and released; the model keeps idle keys in a list, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = DeviceCache(BLOCKS)
        self.chains: list[list[int]] = []
        self.idle: list[int] = []
        self.told: set[int] = set()

    def held(self) -> set[int]:
        return {key for chain in self.chains for key in chain}

    @rule(keys=st.lists(st.integers(0, 9), max_size=4, unique=True))
    def take(self, keys: list[int]) -> None:
        """As an admission does: hold the cached prefix, allocate and publish the rest."""
        count = self.cache.prefix(pack(keys))
        known = self.held() | set(self.idle)
        assert count == next((i for i, key in enumerate(keys) if key not in known), len(keys))
        idle = [key for key in keys[:count] if key in self.idle]
        if len(keys) - count > BLOCKS - len(self.held()) - len(idle):
            return
        self.cache.hold(pack(keys[:count]))
        self.idle = [key for key in self.idle if key not in idle]
        self.cache.allocate(len(keys) - count)
        held = len(self.held() | set(keys[:count])) + len(keys) - count
        del self.idle[: max(0, held + len(self.idle) - BLOCKS)]
        self.cache.publish(pack(keys[count:]))
        self.idle = [key for key in self.idle if key not in keys]
        self.chains.append(keys)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if not self.chains:
            return
        chain = self.chains.pop(data.draw(st.integers(0, len(self.chains) - 1)))
        self.cache.release(pack(chain), 0)
        self.idle += [key for key in reversed(chain) if key not in self.held()]

    @rule()
    def hear(self) -> None:
        """Whoever applies the changes knows the content."""
        changes = self.cache.take_changes()
        self.told |= set(changes.stored)
        self.told -= set(changes.removed)
        assert self.told == self.cache.keys()

    @invariant()
    def holds(self) -> None:
        self.cache.check()
        assert self.cache.keys() == self.held() | set(self.idle)
        assert self.cache.held == len(self.held())


TestDeviceCache = CacheMachine.TestCase
TestDeviceCache.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
