"""Prints what auto-recovery notices and does, for the commands that run it."""

from __future__ import annotations


def print_log() -> None:
    """Print what auto-recovery notices and does to stderr, each line with its time."""
    import logging
    import sys

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logger = logging.getLogger("ledgerstore.autorecovery")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Remarks about connections are not printed without a handler of their own.
    logging.getLogger("ledgerstore").addHandler(logging.NullHandler())
