"""How the command ends: its exit codes, and the error for a job that cannot be done."""

from __future__ import annotations

import enum
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


class Exit(enum.IntEnum):
    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    FAILED = 3
    PARTLY = 4
    INTERRUPTED = 130


class CannotDo(click.ClickException):
    """No such file, no permission, not a store: one line on stderr, and no traceback."""

    exit_code = Exit.FAILED

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        say(f"ledgerstore: {self.message}")


def refusal(error: OSError) -> CannotDo:
    """What the system refused, in a person's words."""
    reason = error.strerror or str(error)
    return CannotDo(f"{error.filename}: {reason}" if error.filename else reason)


def say(line: str) -> None:
    """One line for the person, behind all rows that were written before it."""
    sys.stdout.flush()
    click.echo(line, err=True)


@contextmanager
def ended_as_if_interrupted() -> Iterator[None]:
    """Whoever ends us wants an end too of what we have started."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
