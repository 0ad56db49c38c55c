"""When an engine that makes no step is wedged, and when it only takes its time."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.workers.pulse import Pulse, PulseSettings, Sign

SETTINGS = PulseSettings(stall_s=30.0, stall_steps=500.0, stall_most_s=600.0, probe_s=10.0, look_s=1.0)


class Looker:
    """Looks every second."""

    def __init__(self) -> None:
        self.now, self.steps = 0.0, 0
        self.pulse = Pulse(SETTINGS, self.now)

    def looks(self, seconds: int, has_work: bool, steps: int = 0) -> list[Sign]:
        """What so many looks show; the engine makes `steps` before each."""
        signs = []
        for _ in range(seconds):
            self.now += SETTINGS.look_s
            self.steps += steps
            signs.append(self.pulse.look(self.now, self.steps, has_work))
        return signs


def test_an_engine_with_work_is_wedged_after_its_time_without_a_step() -> None:
    looker = Looker()
    assert looker.looks(5, has_work=True, steps=3) == [Sign.WELL] * 5
    assert looker.looks(29, has_work=True) == [Sign.WELL] * 29
    assert looker.looks(2, has_work=True) == [Sign.STALLED] * 2


def test_only_a_step_ends_that() -> None:
    looker = Looker()
    looker.looks(31, has_work=True)
    assert looker.looks(1, has_work=False) == [Sign.STALLED]
    assert looker.looks(1, has_work=True, steps=1) == [Sign.WELL]


def test_an_engine_is_asked_for_a_step_whenever_it_was_idle_for_a_while() -> None:
    looker = Looker()
    assert looker.looks(1, has_work=True, steps=1) == [Sign.WELL]
    assert looker.looks(10, has_work=False) == [Sign.WELL] * 9 + [Sign.PROBE]
    assert looker.looks(20, has_work=True, steps=1) == [Sign.WELL] * 20


def test_a_slow_engine_gets_as_much_longer_as_its_small_steps_take() -> None:
    """On one core, a chunk of 2,048 tokens of a model of a billion parameters takes a minute, a token 0.3 s."""
    looker = Looker()
    looker.pulse.small_step(0.3)
    assert looker.pulse.allowed_s == 150.0
    assert looker.looks(149, has_work=True) == [Sign.WELL] * 149
    assert looker.looks(1, has_work=True) == [Sign.STALLED]


def test_what_small_steps_took_is_smoothed_and_what_they_allow_is_bounded() -> None:
    pulse = Pulse(SETTINGS, 0.0)
    pulse.small_step(0.2)
    pulse.small_step(0.4)
    assert round(pulse.allowed_s) == 150
    pulse.small_step(60.0)
    assert pulse.allowed_s == 600.0
    pulse.small_step(0.01)
    assert pulse.allowed_s == 30.0


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """The whole machine was held up, or this process was: the engine may have been, too."""
    pulse = Pulse(SETTINGS, 0.0)
    assert pulse.look(1.0, 1, True) is Sign.WELL
    assert pulse.look(3600.0, 1, True) is Sign.WELL
    assert pulse.still_s == 2.0


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.integers(0, 2), st.booleans()), max_size=60))
def test_it_is_stalled_exactly_when_it_had_work_for_long_enough_and_has_not_stepped_since(
    looks: list[tuple[float, int, bool]],
) -> None:
    pulse, now, steps, still_s, stalled = Pulse(SETTINGS, 0.0), 0.0, 0, 0.0, False
    for passed, made, has_work in looks:
        now, steps = now + passed, steps + made
        still_s = still_s + min(passed, 2.0) if has_work and not made else 0.0
        stalled = (stalled and not made) or still_s >= SETTINGS.stall_s
        sign = pulse.look(now, steps, has_work)
        assert pulse.stalled is stalled
        assert sign is not Sign.PROBE or not has_work
        assert (sign is Sign.STALLED) <= stalled
