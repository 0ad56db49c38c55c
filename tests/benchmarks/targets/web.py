"""An ASGI app in plain uvicorn, announced once its socket listens."""

from typing import Any

import uvicorn

from tests.benchmarks.targets.announce import announce


class AnnouncingServer(uvicorn.Server):  # type: ignore[misc]  # uvicorn is untyped here
    """uvicorn's server, which says under a target's name that it is up."""

    def __init__(self, name: str, app: Any, port: int) -> None:
        super().__init__(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", access_log=False))
        self._name = name
        self._port = port

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        announce(self._name, port=self._port)
