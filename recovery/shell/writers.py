"""The three forms of output, with one interface: rows in, text out, nothing kept."""

from __future__ import annotations

import enum
import json
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from recovery.shell.table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.shell.columns import Column, Row


class Form(enum.Enum):
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


class Writer(Protocol):
    """Takes rows as they come. Without `end` the output is visibly incomplete."""

    def row(self, row: Row) -> None: ...
    def end(self) -> None: ...


class NdjsonWriter:
    """One object on each line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def row(self, row: Row) -> None:
        self._stream.write(_dump(row) + "\n")

    def end(self) -> None:
        self._stream.flush()


class JsonWriter:
    """One array, written piece by piece."""

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
    return json.dumps(row, ensure_ascii=False)


def writer(form: Form, columns: Sequence[Column]) -> Writer:
    """What writes to stdout in that form."""
    match form:
        case Form.JSON:
            return JsonWriter(sys.stdout)
        case Form.NDJSON:
            return NdjsonWriter(sys.stdout)
        case Form.TABLE:
            return TableWriter(sys.stdout, columns)
