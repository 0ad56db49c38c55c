"""What a reader knows of a changing set, whenever it reads."""

from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.net_changes import NetChanges

KEYS = st.sets(st.integers(0, 9), max_size=4)
STEPS = st.lists(st.one_of(KEYS, st.none()), max_size=30)


@given(STEPS, st.integers(0, 5), st.integers(1, 4))
def test_what_was_taken_adds_up_to_the_set_and_what_waits_is_bounded(
    steps: list[set[int] | None], bound: int, most: int
) -> None:
    """A set toggles these keys; None lets the reader take one part. In the end it takes all."""
    held: set[int] = set()
    known: set[int] = set()
    changes = NetChanges(lambda: sorted(held), bound, most)
    for step in [*steps, *[None] * 20]:
        for key in step or ():
            held ^= {key}
            changes.note(key, key in held)
        assert len(changes) <= bound + 10
        if step is not None or (change := changes.take()) is None:
            continue
        assert len(change.appeared) + len(change.gone) <= most
        known = set() if change.snapshot else known
        assert not known & set(change.appeared)
        assert known >= set(change.gone)
        known = (known | set(change.appeared)) - set(change.gone)
    assert (known, changes.waiting, len(changes)) == (held, False, 0)


def test_a_reader_that_does_not_read_costs_a_constant() -> None:
    changes = NetChanges[int](list, max_waiting_keys=2)
    changes.take()
    for key in range(100):
        changes.note(key, True)
        assert len(changes) <= 2
    change = changes.take()
    assert change is not None
    assert (change.snapshot, change.appeared) == (True, [])
