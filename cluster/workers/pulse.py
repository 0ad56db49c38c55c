"""Whether an engine makes steps: decides, from looks at it, when to ask it for one and when it is wedged. Pure.

Whatever an engine is to do, it does in steps. So one that has work and makes none for long enough is wedged, however
alive its processes are. How long is enough follows from the engine itself: a step of a prompt's tokens takes some
hundred times as long as one of a few. Time in which nobody looked does not count: then this process did not run either.
"""

from dataclasses import dataclass
from enum import Enum, auto

SMOOTHING = 0.5
"""Weight of a small step that took longer than those before: it may have waited for the machine."""

UNSEEN_LOOKS = 2
"""Looks that come later than this many pauses between two say that the looker itself was held up."""


@dataclass(frozen=True, slots=True)
class PulseSettings:
    """See `configs.schema.HealthConfig`. `look_s` is the pause between two looks."""

    stall_s: float = 30.0
    stall_steps: float = 1000.0
    stall_most_s: float = 600.0
    probe_s: float = 10.0
    look_s: float = 1.0


class Sign(Enum):
    """What a look shows. `PROBE`: it has had nothing to do for a while and is to be asked for a step."""

    WELL = auto()
    PROBE = auto()
    STALLED = auto()


class Pulse:
    """One engine's. Invariant: `still_s` is zero unless it has work; once stalled, only a step ends that."""

    def __init__(self, settings: PulseSettings, now: float) -> None:
        self._settings = settings
        self._looked_at = now
        self._steps = 0
        self._small_step_s = 0.0
        self._idle_s = 0.0
        self.still_s = 0.0
        self.stalled = False

    def __repr__(self) -> str:
        return f"<Pulse steps={self._steps} still={self.still_s:g} s of {self.allowed_s:g} stalled={self.stalled}>"

    @property
    def allowed_s(self) -> float:
        """How long it may work without a step."""
        settings = self._settings
        scaled_s = settings.stall_steps * self._small_step_s
        return max(settings.stall_s, min(scaled_s, settings.stall_most_s))

    def look(self, now: float, steps: int, has_work: bool) -> Sign:
        """It has made so many steps in its life, and has something to do, or not."""
        passed = min(now - self._looked_at, UNSEEN_LOOKS * self._settings.look_s)
        self._looked_at = now
        if steps != self._steps:
            self._steps, self.still_s, self._idle_s, self.stalled = steps, 0.0, 0.0, False
        elif has_work:
            self.still_s, self._idle_s = self.still_s + passed, 0.0
        else:
            self.still_s, self._idle_s = 0.0, self._idle_s + passed
        self.stalled = self.stalled or self.still_s >= self.allowed_s
        if not has_work and self._idle_s >= self._settings.probe_s:
            return Sign.PROBE
        return Sign.STALLED if self.stalled else Sign.WELL

    def small_step(self, took_s: float) -> None:
        """A step of a few tokens, which it made when asked for one, took so long."""
        before_s = self._small_step_s or took_s
        self._small_step_s = min(took_s, before_s + SMOOTHING * (took_s - before_s))
