"""Exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

import enum
import errno
import signal
import socket
import sys
from contextlib import contextmanager
from importlib.util import find_spec
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
    NOT_INSTALLED = 69
    """EX_UNAVAILABLE of sysexits.h."""
    INTERNAL = 70
    """EX_SOFTWARE of sysexits.h."""
    INTERRUPTED = 130


class CannotDo(click.ClickException):
    """The command is not possible: no such file, no permission, not a store. Printed without a traceback."""

    exit_code = Exit.FAILED

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        say(f"ledgerstore: {self.message}")


class StoreRefused(CannotDo):
    """The store cannot be opened because acknowledged data is damaged. This is a finding."""

    exit_code = Exit.FINDINGS


class NotInstalled(CannotDo):
    """A package is missing. One of the extras of ledgerstore installs it."""

    exit_code = Exit.NOT_INSTALLED


class Unexpected(CannotDo):
    """A bug in this program.

    Its exit code differs from that of a finding, so that scripts can tell them apart.
    """

    exit_code = Exit.INTERNAL

    def __init__(self, error: Exception) -> None:
        import traceback

        what = " ".join("".join(traceback.format_exception_only(error)).split())
        super().__init__(f"unexpected error: {what} (`ledgerstore --debug …` prints the traceback)")


def failure_of(error: OSError) -> CannotDo:
    """Return the error that reports a failed system call: the file, and the reason."""
    reason = error.strerror or str(error)
    return CannotDo(f"{error.filename}: {reason}" if error.filename else reason)


@contextmanager
def listening(host: str, port: int, option: str) -> Iterator[None]:
    """Name the address and the option that chooses another one if a server cannot listen in the block."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotDo(
                f"another program listens on {host}:{port}: choose another port with {option}port"
            ) from error
        # From Python 3.12 on asyncio passes over such addresses, and its error has no number.
        if error.errno in (errno.EADDRNOTAVAIL, None) or isinstance(error, socket.gaierror):
            raise CannotDo(f"{host} is no address of this machine: choose one with {option}host") from error
        raise


def say(line: str) -> None:
    """Print one line to stderr, after flushing the rows on stdout so that the order is kept."""
    sys.stdout.flush()
    click.echo(line, err=True)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and the end of the terminal as Ctrl-C inside the block, so that child processes end too.

    A signal that is ignored, as `nohup` has it, stays ignored.
    """

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_installed(command: str, extra: str, *packages: str) -> None:
    """Raise an error that says what to install, unless all packages are there."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        raise NotInstalled(f"{command} needs {names}: pip install 'ledgerstore[{extra}]'")
