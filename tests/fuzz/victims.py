"""Every end of every protocol, by name."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from tests.fuzz.destination_victim import running_destination_victim
from tests.fuzz.gateway_victim import running_gateway_victim
from tests.fuzz.source_victim import running_source_victim
from tests.fuzz.store_victim import running_store_victim
from tests.fuzz.victim import Victim
from tests.fuzz.worker_victim import running_worker_victim

VICTIMS: Mapping[str, Callable[[], AbstractAsyncContextManager[Victim]]] = {
    "worker": running_worker_victim,
    "gateway": running_gateway_victim,
    "store": running_store_victim,
    "source": running_source_victim,
    "destination": running_destination_victim,
}
