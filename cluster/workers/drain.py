"""How a worker is taken out of service, and back into it.

    serving ──begin──▶ finishing ──in time, or not──▶ handing back          `undo` leads back to serving from both

A worker that drains takes no new legs. Its live ones may end there for a while (finishing); after that their gateways
are asked to let another worker go on with them (handing back). Whoever nobody else can go on with stays to the end.
"""

import asyncio
from collections.abc import Callable


class Drain:
    """One worker's. `changed` is called after each change, so that gateways hear of it at once."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.draining = False
        self.handing_back = False
        self._changed = changed
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "handing back" if self.handing_back else "finishing" if self.draining else "serving"
        return f"<Drain {state}>"

    def begin(self, finish_s: float) -> None:
        """Out of service; live legs may end for `finish_s` seconds. Begun again, the time begins again as well."""
        self._set(draining=True, handing_back=False)
        self._timer = asyncio.get_running_loop().call_later(finish_s, self._hand_back)

    def undo(self) -> None:
        """In service again. What gateways have moved stays where it is."""
        self._set(draining=False, handing_back=False)

    def close(self) -> None:
        """Nothing changes by itself any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hand_back(self) -> None:
        self._set(draining=True, handing_back=True)

    def _set(self, *, draining: bool, handing_back: bool) -> None:
        self.close()
        self.draining, self.handing_back = draining, handing_back
        self._changed()
