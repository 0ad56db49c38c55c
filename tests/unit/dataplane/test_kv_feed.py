"""What a gateway knows of a device, whenever it reads."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.dataplane.kv_feed import KvFeed

KEYS = st.sets(st.integers(0, 9), max_size=4)
STEPS = st.lists(st.one_of(KEYS, st.none()), max_size=30)


@given(STEPS, st.integers(0, 5))
def test_what_was_sent_is_what_the_device_holds_and_what_waits_is_bounded(
    steps: list[set[int] | None], bound: int
) -> None:
    """A set toggles these keys; None lets the gateway read."""
    held: set[int] = set()
    known: set[int] = set()
    feed = KvFeed(lambda: sorted(held), max_pending_keys=bound)
    expected_sequence = 0
    for step in [*steps, None]:
        if step is not None:
            stored, removed = step - held, step & held
            held ^= step
            feed.change(stored, removed)
            assert len(feed._present) <= bound
            continue
        events = feed.take()
        if events is None:
            assert known == held
            continue
        expected_sequence = 0 if events.snapshot else expected_sequence + 1
        assert events.sequence == expected_sequence
        known = set(events.stored) if events.snapshot else (known | set(events.stored)) - set(events.removed)
        assert known == held
