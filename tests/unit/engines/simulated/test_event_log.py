from cluster.engines.engine import BlocksChanged
from cluster.engines.simulated.event_log import EventLog

KEYS = [bytes([key]) for key in range(6)]


async def test_nothing_is_kept_while_nobody_listens() -> None:
    log = EventLog(max_hashes=4)
    log.removed(KEYS[:1])
    events = log.consume()
    log.removed(KEYS[1:2])
    assert await anext(events) == [BlocksChanged("removed", (KEYS[1],))]
    await events.aclose()


async def test_a_consumer_that_lags_too_far_is_told_that_everything_is_gone() -> None:
    log = EventLog(max_hashes=4)
    events = log.consume()
    log.removed(KEYS[:3])
    log.removed(KEYS[3:])
    log.removed(KEYS[:1])
    assert await anext(events) == [BlocksChanged("cleared"), BlocksChanged("removed", (KEYS[0],))]
    await events.aclose()
