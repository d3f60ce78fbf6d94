"""What a logger says while a test looks."""

import contextlib
import logging


@contextlib.contextmanager
def logged(name):
    """The lines of a logger from INFO on, as they come."""
    taken = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: taken.append(record.getMessage())
    logger = logging.getLogger(name)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield taken
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
