"""Serve's log survives whoever configures logging anew."""

import logging
import logging.config
from logging.handlers import MemoryHandler
from pathlib import Path

from cluster.logs import SERVE_LOGGER, log_kept


def test_what_is_logged_after_logging_was_configured_anew_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "replica.log"
    buffer = MemoryHandler(1, target=logging.FileHandler(path))
    logger = logging.getLogger(SERVE_LOGGER)
    logger.addHandler(buffer)
    try:
        logger.warning("before")
        with log_kept():
            logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
        logger.warning("after")
    finally:
        logger.removeHandler(buffer)
        if buffer.target is not None:
            buffer.target.close()
        buffer.close()
    assert path.read_text() == "before\nafter\n"
