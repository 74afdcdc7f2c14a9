"""The options of a data source, as Spark passes them: texts, by names that are not case-sensitive."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model.tables import Table
from recovery.audit.spark import tables
from recovery.directory.local_paths import local_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

_YES_OR_NO = {"true": True, "false": False}


class UnreadableFiles(enum.Enum):
    """What a query does about a journal or a log that the system refuses to read."""

    SKIP = "skip"
    """The file has no entries and runs; `flaws` and `parts` say why."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one source."""

    paths: tuple[str, ...]
    rows: str
    table: Table
    """The columns that are wanted."""
    policy: DigestPolicy = field(repr=False)
    """The passwords that were given."""
    unreadable: UnreadableFiles = UnreadableFiles.SKIP

    @property
    def payload(self) -> bool:
        return tables.PAYLOAD in self.table.columns


def parse(options: Mapping[str, str], of_kind: Mapping[str, Table]) -> SourceOptions:
    """Parse the options. `of_kind` are the available tables. Raise `ValueError` with the reason."""
    given, rows = _paths(options), options.get("rows", "entries")
    payload = _YES_OR_NO.get(options.get("payload", "false").lower())
    if not given:
        raise ValueError("a path is needed: load(path), load([path, …]), or OPTIONS (path '…')")
    # Each once, because two patterns may match the same path.
    paths = tuple(dict.fromkeys(path for one in given for path in local_paths(one)))
    if rows not in of_kind:
        raise ValueError(f"rows is one of {', '.join(of_kind)}, not {rows!r}")
    if payload is None:
        raise ValueError("payload is true or false")
    whole = of_kind[rows]
    if any(name == "payload_size" for name, _ in whole.columns):
        wanted = _names(options) or ()
        whole = tables.with_payload(whole) if payload or "payload" in wanted else whole
    elif payload:
        raise ValueError("payload goes with the entries of logs and journals only")
    unreadable = options.get("unreadable", UnreadableFiles.SKIP.value).lower()
    if unreadable not in {one.value for one in UnreadableFiles}:
        raise ValueError("unreadable is skip or fail")
    return SourceOptions(
        paths, rows, _selected(whole, _names(options)), _policy(options), UnreadableFiles(unreadable)
    )


def _paths(options: Mapping[str, str]) -> list[str]:
    """Return the given paths. Spark passes several ones as a JSON list."""
    path = options.get("path")
    several: list[str] = json.loads(options.get("paths", "[]"))
    return [path, *several] if path else several


def _names(options: Mapping[str, str]) -> list[str] | None:
    """Return the names of the wanted columns, or `None` for all."""
    given = options.get("columns")
    return None if given is None else [name.strip() for name in given.split(",")]


def _selected(whole: Table, names: list[str] | None) -> Table:
    """Return the table with the wanted columns, in the given order."""
    columns = dict((*whole.columns, tables.STORE))
    if names is None:
        return Table(tuple(columns.items()))
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}: columns are {', '.join(columns)}")
    return Table(tuple((name, columns[name]) for name in dict.fromkeys(names)))


def _policy(options: Mapping[str, str]) -> DigestPolicy:
    """Read passwords, as the command line takes them. In a file they stay out of plans, histories
    and logs.
    """
    given = [options["password"]] if "password" in options else []
    if "passwordFile" in options:
        text = Path(options["passwordFile"]).read_text(encoding="utf-8", errors="surrogateescape")
        given = [*text.splitlines(), *given]
    by_ledger: dict[int, bytes] = {}
    otherwise: bytes | None = None
    for one in given:
        ledger, equals, password = one.partition("=")
        if equals and ledger.isascii() and ledger.isdigit():
            by_ledger[int(ledger)] = password.encode(errors="surrogateescape")
        else:
            otherwise = one.encode(errors="surrogateescape")
    return DigestPolicy(passwords=by_ledger, password=otherwise)
