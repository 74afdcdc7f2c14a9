"""Prints the log of auto-recovery, for the commands that run it."""

from __future__ import annotations

import logging

from recovery.shell.exit_codes import say


class _Lines(logging.Handler):
    """Prints each message as one line to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def print_log() -> None:
    """Print the log of auto-recovery to stderr, each line with its time."""
    logger = logging.getLogger("ledgerstore.autorecovery")
    if not any(isinstance(one, _Lines) for one in logger.handlers):
        handler = _Lines()
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S")
        )
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        # Otherwise logging would print warnings about connections, which have no handler, in another form.
        logging.getLogger("ledgerstore").addHandler(logging.NullHandler())
