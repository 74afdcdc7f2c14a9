"""How the command ends: its exit codes, and the error for a job that cannot be done."""

from __future__ import annotations

import enum
import sys

import click


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
