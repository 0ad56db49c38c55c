"""Where our own log lines go in a Serve replica: to Serve's handlers, so that an operator finds them in one place.

A level of their own keeps them visible: importing vLLM's API app sets the root logger to ERROR.
"""

import logging

PACKAGES = ("cluster", "kvtransfer", "routing")


def join_serve_logs(level: int = logging.INFO) -> None:
    """Send the packages' log lines to the handlers of `ray.serve`, once."""
    handlers = logging.getLogger("ray.serve").handlers
    for name in PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        for handler in handlers:
            if handler not in logger.handlers:
                logger.addHandler(handler)
