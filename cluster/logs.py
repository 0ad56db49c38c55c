"""Logging of a Serve replica: our lines go where Serve's go, and neither is lost to what an import does.

Importing vLLM's API app sets the root logger to ERROR, so our packages have a level of their own. Importing vLLM calls
`logging.config.dictConfig`, which closes every handler of the process: Serve buffers a replica's log in a handler that
forgets its file when it is closed. A replica without one logs nothing any more and cannot be taken over by a restarted
controller, which asks it for the file's name and replaces it when it fails.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler

PACKAGES = ("cluster", "kvtransfer", "routing")
SERVE_LOGGER = "ray.serve"


def join_serve_logs(level: int = logging.INFO) -> None:
    """Send the packages' log lines to the handlers of `ray.serve`, once."""
    handlers = logging.getLogger(SERVE_LOGGER).handlers
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        for handler in handlers:
            if handler not in logger.handlers:
                logger.addHandler(handler)


@contextmanager
def log_kept() -> Iterator[None]:
    """After the block, what Serve's log buffers write to is what it was before. A closed file opens itself again."""
    buffers = [one for one in logging.getLogger(SERVE_LOGGER).handlers if isinstance(one, MemoryHandler)]
    targets = [buffer.target for buffer in buffers]
    try:
        yield
    finally:
        for buffer, target in zip(buffers, targets, strict=True):
            buffer.setTarget(target)
