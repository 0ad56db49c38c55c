"""What is to be done before the first simulation: compile what it runs, the router's part and its own."""

from cluster.planning.device_cache import DeviceCache
from routing import warm_up as routing
from routing.packed_keys import pack


def warm_up() -> None:
    """Take every way of a block through a device of one: half a minute once, then a second in each process."""
    routing.warm_up()
    device, keys = DeviceCache(1), pack([1])
    device.allocate(1)
    device.publish(keys)
    device.release(keys, 0)
    device.idle_among(keys[: device.prefix(keys)])
    device.hold(keys)
    device.release(keys, 0)
    device.allocate(1)
    device.take_changes()
