"""Options that several commands share, and the frozen values that they are collected into."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from recovery.shell.exit_codes import CannotDo, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.bookkeeper.directories import BookieDirectories

    Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Numbers from `first` to `last`, both included. `last` is `None` if there is no end."""

    first: int = 0
    last: int | None = None

    def covers(self, start: int, end: int) -> bool:
        """Return whether any byte of [start, end) is in the range.

        An empty interval counts as the byte `start`.
        """
        return max(end, start + 1) > self.first and not self.is_before(start)

    def __contains__(self, number: int) -> bool:
        return self.first <= number and not self.is_before(number)

    def is_before(self, number: int) -> bool:
        """Return whether the whole range is before the number."""
        return self.last is not None and number > self.last


def bookie_directories(function: Function) -> Function:
    """Add the options that name the directories of a bookie which has several of a kind."""

    @click.option("--conf", metavar="FILE", help="A bookie's bk_server.conf: check all its directories.")
    @click.option(
        "--journal-dir", multiple=True, metavar="DIR", help="A journal directory. May be repeated, in order."
    )
    @click.option(
        "--ledger-dir", multiple=True, metavar="DIR", help="A ledger directory. May be repeated, in order."
    )
    @wraps(function)
    def with_directories(
        *args: Any, conf: str | None, journal_dir: tuple[str, ...], ledger_dir: tuple[str, ...], **others: Any
    ) -> Any:
        directories = _named_directories(conf, journal_dir, ledger_dir)
        return function(*args, directories=directories, **others)

    return cast("Function", with_directories)


def _named_directories(
    conf: str | None, journals: tuple[str, ...], ledgers: tuple[str, ...]
) -> BookieDirectories | None:
    from recovery.bookkeeper import directories
    from storage.errors import InvalidConfig

    if conf is None and not journals and not ledgers:
        return None
    if conf is not None and (journals or ledgers):
        raise click.UsageError("--conf names the directories already")
    if conf is None and not (journals and ledgers):
        raise click.UsageError("--journal-dir and --ledger-dir need each other")
    try:
        found = (
            directories.BookieDirectories(journals, ledgers)
            if conf is None
            else directories.of_configuration(conf)
        )
        directories.check_are_there(found)
    except OSError as error:
        raise failure_of(error) from error
    except InvalidConfig as error:
        raise CannotDo(str(error)) from error
    return found


class ListingScope(enum.Enum):
    """Which items of a file are listed: only its records, or also padding, seals and ledgers maps."""

    RECORDS = "records"
    EVERYTHING = "everything"


class PayloadFormat(enum.Enum):
    """How payloads are printed."""

    NONE = "none"
    HEX = "hex"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The filters of a listing. Damage is always listed, because it may hide records that match."""

    ledgers: frozenset[int] = frozenset()
    """Empty for all ledgers."""
    entries: NumberRange | None = None
    """`None` for every record, also for records that are not entries."""
    offsets: NumberRange = NumberRange()
    limit: int | None = None
    shown: ListingScope = ListingScope.RECORDS
    payload: PayloadFormat = PayloadFormat.NONE

    def matches(self, ledger_id: int, entry_id: int | None) -> bool:
        """Return whether a record of this ledger matches. `entry_id` is `None` if it is not an entry."""
        if self.ledgers and ledger_id not in self.ledgers:
            return False
        return self.entries is None or (entry_id is not None and entry_id in self.entries)

    @property
    def includes_fillers(self) -> bool:
        """Whether padding, fillers, ledgers maps and sound seals are listed."""
        return self.shown is ListingScope.EVERYTHING and not self.ledgers and self.entries is None


_SPAN = re.compile(r"(\w*)(\.\.)?(\w*)")


class NumberRangeType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Parses `7`, `7..9`, `7..` or `..9`, decimal or hexadecimal with 0x. Both ends are included."""

    name = "N[..M]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NumberRange:
        if isinstance(value, NumberRange):
            return value
        match = _SPAN.fullmatch(value)
        try:
            span = self._span(*match.groups()) if match else None
        except ValueError:
            span = None
        if span is None:
            self.fail(f"{value!r} is neither a number nor a range such as 10..20", param, ctx)
        return span

    def _span(self, first: str, dots: str | None, last: str) -> NumberRange | None:
        if not dots:
            return NumberRange(int(first, 0), int(first, 0))
        low, high = (int(first, 0) if first else 0), (int(last, 0) if last else None)
        return None if high is not None and high < low else NumberRange(low, high)


class NumberType(click.ParamType):  # type: ignore[type-arg]
    """Parses a number that is not negative, decimal or hexadecimal with 0x."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value, 0) if isinstance(value, str) else int(value)
        except ValueError:
            number = -1
        if number < 0:
            self.fail(f"{value!r} is not a number of at least 0", param, ctx)
        return number


def output(function: Function) -> Function:
    """Add `--json` and `--ndjson`. The command gets them as `form`."""

    @click.option("--json", "as_json", is_flag=True, help="Print the rows as one JSON array.")
    @click.option("--ndjson", "as_ndjson", is_flag=True, help="Print the rows as one JSON object per line.")
    @wraps(function)
    def gathered(as_json: object, as_ndjson: object, **rest: Any) -> Any:
        from recovery.shell.output import Form

        if as_json and as_ndjson:
            raise click.UsageError("--json and --ndjson cannot be used together")
        form = Form.JSON if as_json else Form.NDJSON if as_ndjson else Form.TABLE
        return function(form=form, **rest)

    return gathered  # type: ignore[return-value]


def filters(function: Function) -> Function:
    """Add the filters of a listing. The command gets them as `row_filter`."""

    @click.option(
        "--ledger", "ledgers", type=NumberType(), multiple=True, help="Only this ledger. May be repeated."
    )
    @click.option("--entry", "entries", type=NumberRangeType(), help="Only entries with these ids.")
    @click.option(
        "--offset", "offsets", type=NumberRangeType(), help="Only records that overlap these offsets."
    )
    @click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N rows.")
    @click.option("--all", "everything", is_flag=True, help="Also list padding, seals and ledgers maps.")
    @click.option(
        "--payload",
        type=click.Choice([payload.value for payload in PayloadFormat]),
        default=PayloadFormat.NONE.value,
        help="Print the payloads.  [default: none]",
    )
    @wraps(function)
    def gathered(
        ledgers: tuple[int, ...],
        entries: NumberRange | None,
        offsets: NumberRange | None,
        limit: int | None,
        everything: object,
        payload: str,
        **rest: Any,
    ) -> Any:
        shown = ListingScope.EVERYTHING if everything else ListingScope.RECORDS
        row_filter = RowFilter(
            frozenset(ledgers), entries, offsets or NumberRange(), limit, shown, PayloadFormat(payload)
        )
        return function(row_filter=row_filter, **rest)

    return gathered  # type: ignore[return-value]


def passwords(function: Function) -> Function:
    """Add `--password` and `--password-file`. The command gets them as `passwords`."""

    @click.option(
        "--password",
        "given",
        multiple=True,
        metavar="[LEDGER=]TEXT",
        help="Password of one ledger, or of all ledgers, to check MAC digests. May be repeated.",
    )
    @click.option(
        "--password-file",
        metavar="FILE",
        help="Read passwords from FILE, one per line, so that the process list does not show them.",
    )
    @wraps(function)
    def gathered(given: tuple[str, ...], password_file: str | None, **rest: Any) -> Any:
        from recovery.shell.passwords import parse

        lines = _lines(password_file) if password_file is not None else []
        return function(passwords=parse([*lines, *given]), **rest)

    return gathered  # type: ignore[return-value]


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise failure_of(error) from error
    return text.splitlines()


_LARGE = 512 << 20
"""For fewer bytes, one process ends before others have started."""


def worker_count(size: int, jobs: int | None) -> int:
    """Return the number of processes: `jobs` if given, otherwise one for each CPU if the input is large."""
    from recovery.audit.engines.local import processors

    return jobs or (processors() if size >= _LARGE else 1)


STORE_VARIABLE = "LEDGERSTORE_DIR"

store = click.argument("store", metavar="[STORE]", default=".", envvar=STORE_VARIABLE)
"""Adds the argument for the store to read. Its default is $LEDGERSTORE_DIR, then the current directory."""

store_to_change = click.argument("store", metavar="STORE", envvar=STORE_VARIABLE)
"""Adds the argument for the store to change. Its default is $LEDGERSTORE_DIR, never the current directory."""


def store_from_environment() -> tuple[str, ...]:
    """Return $LEDGERSTORE_DIR if it is set. For a command that takes several stores."""
    path = os.environ.get(STORE_VARIABLE)
    return (path,) if path else ()


def store_of_file(function: Function) -> Function:
    """Add the argument `store`: the store in which the command looks for a file by its id or name.

    The former option `--dir` still works.
    """

    @store
    @click.option("--dir", "former", hidden=True)
    @wraps(function)
    def gathered(store: str, former: str | None, **rest: Any) -> Any:
        if former is None:
            return function(store=store, **rest)
        source = click.get_current_context().get_parameter_source("store")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("the store is given twice: as an argument, and with --dir")
        return function(store=former, **rest)

    return gathered  # type: ignore[return-value]
