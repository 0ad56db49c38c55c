"""Keeps Serve's log file open while something else configures logging.

vLLM calls `logging.config.dictConfig` when it is imported, and that closes every handler of the process. Serve buffers
a replica's log in a handler that forgets its file when it is closed. A replica without one logs nothing any more and
cannot be taken over by a restarted controller, which asks it for the file's name and replaces it when it fails.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler

LOGGER = "ray.serve"


@contextmanager
def log_kept() -> Iterator[None]:
    """After the block, what Serve's log buffers write to is what it was before. A closed file opens itself again."""
    buffers = [one for one in logging.getLogger(LOGGER).handlers if isinstance(one, MemoryHandler)]
    targets = [buffer.target for buffer in buffers]
    try:
        yield
    finally:
        for buffer, target in zip(buffers, targets, strict=True):
            buffer.setTarget(target)
