"""Prints rows as a table, as JSON or as NDJSON, and shows progress bars on stderr.

A row is a plain dict with stable keys, the same for tables and for JSON. Rows stream: except for the first
ones of a table, which decide the widths of its columns, no row is kept in memory.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TextIO

import click

from recovery.shell.exit_codes import say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from rich.progress import Progress, TaskID
    from rich.table import Table

    from recovery.audit.engines.progress import AuditProgress


Cell = str | int | float | bool | None
Row = dict[str, Cell]


class Align(enum.Enum):
    LEFT = "<"
    RIGHT = ">"


class RowTone(enum.Enum):
    """How a row is to be taken. It decides the colour of the row on a terminal, and is not in JSON."""

    PLAIN = "plain"
    GOOD = "good"
    INFORMATION = "information"
    BAD = "bad"


def plain_text(row: Mapping[str, Cell], name: str) -> str:
    """Return a cell as text for a table."""
    match row.get(name):
        case None:
            return "-"
        case True:
            return "yes"
        case False:
            return "no"
        case str() as text:
            return printable(text)
        case number:
            return str(number)


def printable(text: str) -> str:
    """Escape characters that are not printable, so that the text cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `name` is the key in the row and the heading."""

    name: str
    align: Align = Align.LEFT
    width: int = 0
    """Minimum width."""
    rank: int = 0
    """If the terminal is too narrow, the column with the highest rank is left out first.

    Rank 0 always stays.
    """
    text: Callable[[Mapping[str, Cell], str], str] = plain_text

    def cell(self, row: Mapping[str, Cell]) -> str:
        return self.text(row, self.name)


def number_column(name: str, width: int = 0, rank: int = 0) -> Column:
    return Column(name, Align.RIGHT, width, rank)


def tone_of(row: Mapping[str, Cell]) -> RowTone:
    """Return the tone of a row: its own if it has one, otherwise by its cells.

    BAD is for damage, INFORMATION for what a crash may leave.
    """
    if "tone" in row:
        return RowTone(row["tone"])
    if row.get("kind") == "torn" or row.get("state") in ("no mark", "empty"):
        return RowTone.INFORMATION
    if row.get("ok") is False or row.get("valid") is False or row.get("flaw") is not None:
        return RowTone.BAD
    return RowTone.PLAIN


def free_text(row: Mapping[str, Cell], name: str) -> str:
    """Return the text of the last column: empty if the cell is `None`."""
    return "" if row.get(name) is None else plain_text(row, name)


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


SAMPLE = 200
_GAP = "  "
_INDENT = "    "
NO_HEADINGS: Mapping[str, str] = MappingProxyType({})
_COLOURS = {RowTone.BAD: "red", RowTone.INFORMATION: "yellow", RowTone.GOOD: "green"}


def has_colour(stream: TextIO) -> bool:
    """Return whether to use colour: on a terminal, unless NO_COLOR or TERM=dumb is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class TableWriter:
    """Writes rows as lines of text. The last column is free text and is not padded.

    The widths come from the columns and from the first rows. A later cell that is longer shifts the rest of
    its line.
    """

    def __init__(self, stream: TextIO, columns: Sequence[Column]) -> None:
        self._stream = stream
        self._columns = list(columns)
        self._colour = has_colour(stream)
        self._line_width = shutil.get_terminal_size().columns if stream.isatty() else None
        self._waiting: list[Row] | None = []
        self._widths: list[int] = []
        self._left_out: list[str] = []

    def row(self, row: Row) -> None:
        if self._waiting is None:
            self._write(row)
            return
        self._waiting.append(row)
        if len(self._waiting) >= SAMPLE:
            self._begin()

    def end(self) -> None:
        if self._waiting:
            self._begin()
        self._stream.flush()
        if self._left_out:
            say(f"left out, the terminal is too narrow: {', '.join(self._left_out)}")

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        widths = {column.name: _width(column, waiting) for column in self._columns}
        if self._line_width is not None:
            self._fit(widths, self._line_width)
        self._widths = [widths[column.name] for column in self._columns]
        heading = self._line([column.name for column in self._columns])
        if self._line_width is not None and len(heading) > self._line_width:
            # The text of the last column then goes to a line below each row.
            heading = self._line([*(column.name for column in self._columns[:-1]), ""])
        self._stream.write((click.style(heading, bold=True) if self._colour else heading) + "\n")
        for row in waiting:
            self._write(row)

    def _fit(self, widths: dict[str, int], line_width: int) -> None:
        """Remove columns, the highest rank first, until a line fits."""
        fixed = self._columns[:-1]
        while (
            self._columns and sum(widths[c.name] for c in fixed) + len(_GAP) * (len(fixed) - 1) > line_width
        ):
            removed = max(fixed, key=lambda column: column.rank)
            if removed.rank == 0:
                return
            fixed.remove(removed)
            self._columns.remove(removed)
            self._left_out.append(removed.name)

    def _write(self, row: Row) -> None:
        cells = [column.cell(row) for column in self._columns]
        text = cells[-1]
        line = self._line(cells)
        if self._line_width is not None and len(line) > self._line_width and text:
            line = self._line([*cells[:-1], ""]) + f"\n{_INDENT}{text}"
        colour = _COLOURS.get(tone_of(row))
        self._stream.write((click.style(line, fg=colour) if colour and self._colour else line) + "\n")

    def _line(self, cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column.align is Align.RIGHT else cell.ljust(width)
            for cell, width, column in zip(cells, self._widths, self._columns, strict=True)
        ]
        return _GAP.join(padded).rstrip()


def _width(column: Column, sample: Sequence[Row]) -> int:
    cells = max((len(column.cell(row)) for row in sample), default=0)
    return max(len(column.name), column.width, cells)


def drawn_table(
    columns: Sequence[Column], rows: Sequence[Row], headings: Mapping[str, str] = NO_HEADINGS
) -> Table:
    """Return rows as a table that is drawn again in its place. `headings` replace names of columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, len(_GAP), 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.align is Align.RIGHT else "left"
        heading = headings.get(column.name, column.name)
        table.add_column(heading, justify=side, min_width=column.width, no_wrap=True)
    for row in rows:
        cells = [Text(column.cell(row)) for column in columns]
        table.add_row(*cells, style=_COLOURS.get(tone_of(row), ""))
    return table


class Form(enum.Enum):
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


class RowWriter(Protocol):
    """Writes rows one by one. Call `end` after the last one, otherwise the output is visibly incomplete."""

    def row(self, row: Row) -> None: ...
    def end(self) -> None: ...


class NdjsonWriter:
    """Writes one JSON object on each line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def row(self, row: Row) -> None:
        self._stream.write(_dump(row) + "\n")

    def end(self) -> None:
        self._stream.flush()


class JsonWriter:
    """Writes one JSON array, element by element."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._before = "[\n"

    def row(self, row: Row) -> None:
        self._stream.write(self._before + _dump(row))
        self._before = ",\n"

    def end(self) -> None:
        self._stream.write("[]\n" if self._before == "[\n" else "\n]\n")
        self._stream.flush()


def _dump(row: Row) -> str:
    data = {name: cell for name, cell in row.items() if name != "tone"}
    return json.dumps(data, ensure_ascii=False)


def row_writer(form: Form, columns: Sequence[Column]) -> RowWriter:
    """Return a writer to stdout of this form."""
    match form:
        case Form.JSON:
            return JsonWriter(sys.stdout)
        case Form.NDJSON:
            return NdjsonWriter(sys.stdout)
        case Form.TABLE:
            return TableWriter(sys.stdout, columns)


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    return f"{row[name]:,}"


KEY_VALUE_COLUMNS = [
    Column("figure"),
    Column("value", Align.RIGHT, text=_grouped),
    Column("meaning", text=free_text),
]


def key_value_rows(row: Row, meanings: Mapping[str, str], bad_unless_zero: Collection[str]) -> Iterator[Row]:
    """Return one row for each figure that has a meaning. Print them with `KEY_VALUE_COLUMNS`."""
    for name, meaning in meanings.items():
        line: Row = {"figure": name, "value": row[name], "meaning": meaning}
        if name in bad_unless_zero and row[name]:
            line["tone"] = RowTone.BAD.value
        yield line


BAR_DELAY_S = 1.0
_STEP_BYTES = 1 << 18


class ByteProgressBar:
    """Shows how much of a file was listed.

    It appears after a second, and only if stderr alone is a terminal.
    """

    def __init__(self, title: str, size: int) -> None:
        self._title = title
        self._size = size
        self._is_visible = sys.stderr.isatty() and not sys.stdout.isatty()
        self._next = 0
        self._began = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def reach(self, offset: int) -> None:
        """Update the bar. Called for every record, therefore it returns at once in almost every call."""
        if offset < self._next:
            return
        self._next = offset + _STEP_BYTES
        if not self._is_visible or time.monotonic() - self._began < BAR_DELAY_S:
            return
        if self._bar is None:
            self._bar = start_byte_bar(self._title, self._size)
        self._bar[0].update(self._bar[1], completed=offset)


def start_byte_bar(title: str, size: int) -> tuple[Progress, TaskID]:
    """Show a bar that counts bytes. The caller stops it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        Speed(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task(title, total=size)


_STAGE_WIDTH = 30
_STAGE_STEP_S = 0.05


class StageProgressBar:
    """A bar for one stage of a command. It appears after `delay_s`, and only on a terminal."""

    def __init__(self, title: str, delay_s: float = BAR_DELAY_S) -> None:
        self._title = title
        self._is_visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + delay_s
        self._bar: tuple[Progress, TaskID] | None = None

    def end(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    @property
    def is_due(self) -> bool:
        """Whether the bar needs an update.

        Check this before formatting the text, because it is mostly false.
        """
        return self._is_visible and time.monotonic() >= self._next

    def show(self, fraction: float, words: str) -> None:
        self._next = time.monotonic() + _STAGE_STEP_S
        if self._bar is None:
            self._bar = _start_stage_bar(self._title)
        self._bar[0].update(self._bar[1], completed=min(fraction, 1.0), words=words)


def _start_stage_bar(title: str) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(_STAGE_WIDTH),
        TextColumn("{task.fields[words]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
    bar.start()
    return bar, bar.add_task(title.ljust(12), total=1.0, words="")


_STEP_S = 0.1


class AuditProgressBar:
    """A bar for each stage of an audit. It appears after a second, and only on a terminal."""

    def __init__(self) -> None:
        self._is_visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + BAR_DELAY_S
        self._stage = ""
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, progress: AuditProgress) -> None:
        if not self._is_visible or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _STEP_S
        if progress.stage != self._stage or self._bar is None:
            self._end()
            self._stage = progress.stage
            self._bar = start_byte_bar(progress.stage, progress.bytes_total)
        self._bar[0].update(self._bar[1], completed=progress.bytes_done)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
