"""The option --grace and the log on stderr, for the commands that run auto-recovery."""

from __future__ import annotations

import logging

import click

from recovery.shell.exit_codes import say

grace_option = click.option(
    "--grace",
    type=click.FloatRange(0.0, 1e6),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a writer may take to replace a lost bookie before its ledger is recovered.",
)
"""Adds the option that `open_ledger_grace_s` is set from."""


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
