"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once.

At once means that nothing of Python runs any more; the run's reaper clears what is left.
"""

import os
import signal
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class StopRequested(KeyboardInterrupt):
    """Raised in the main thread, wherever it is."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopSignals:
    """Owns the handlers. Install again after anything that installs its own, as `ray.init` does for SIGTERM."""

    def __init__(self) -> None:
        self._asked = False

    def install(self) -> None:
        """Take both signals."""
        for number in NUMBERS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        raise StopRequested(number)
