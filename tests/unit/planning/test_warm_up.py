"""What was compiled before the first simulation is all that is compiled."""

from cluster.planning import device_blocks
from cluster.planning.device_cache import DeviceCache
from cluster.planning.warm_up import warm_up
from routing.packed_keys import pack

ENTRIES = (
    device_blocks.among,
    device_blocks.evict,
    device_blocks.hold,
    device_blocks.idle_among,
    device_blocks.prefix,
    device_blocks.publish,
    device_blocks.release,
)


def test_after_the_warm_up_nothing_is_compiled_any_more() -> None:
    warm_up()
    device = DeviceCache(4)
    for first in range(9):
        keys = pack(range(first, first + 3))
        cached = keys[: device.prefix(keys)]
        assert device.idle_among(cached) == len(cached)
        device.hold(cached)
        device.allocate(3 - len(cached))
        device.publish(keys[len(cached) :])
        device.release(keys, 0)
        device.take_changes()
        device.check()
    assert [len(entry.signatures) for entry in ENTRIES] == [1] * len(ENTRIES)
