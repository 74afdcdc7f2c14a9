"""The options of a data source, as Spark passes them: texts, by names that are not case-sensitive."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.spark import tables
from recovery.directory.local_paths import local_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.model.tables import Table

_YES_OR_NO = {"true": True, "false": False}


class UnreadableFiles(enum.Enum):
    """What a query does about a journal or a log that the system refuses to read."""

    SKIP = "skip"
    """The file has no entries and runs; `flaws` and `parts` say why."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one source."""

    path: str
    rows: str
    payload: bool
    policy: DigestPolicy = field(repr=False)
    """The passwords that were given."""
    unreadable: UnreadableFiles = UnreadableFiles.SKIP


def parse(options: Mapping[str, str], of_kind: Mapping[str, Table]) -> SourceOptions:
    """Parse the options. `of_kind` are the available tables. Raise `ValueError` with the reason."""
    path, rows = options.get("path"), options.get("rows", "entries")
    payload = _YES_OR_NO.get(options.get("payload", "false").lower())
    if not path:
        raise ValueError("a path is needed: load(path), or OPTIONS (path '…')")
    paths = local_paths(path)
    if len(paths) > 1:
        raise ValueError(f"{len(paths)} paths match {path}: load each, and unite the tables")
    if rows not in of_kind:
        raise ValueError(f"rows is one of {', '.join(of_kind)}, not {rows!r}")
    if payload is None:
        raise ValueError("payload is true or false")
    if payload and not any(name == "payload_size" for name, _ in of_kind[rows].columns):
        raise ValueError("payload goes with the entries of logs and journals only")
    unreadable = options.get("unreadable", UnreadableFiles.SKIP.value).lower()
    if unreadable not in {one.value for one in UnreadableFiles}:
        raise ValueError("unreadable is skip or fail")
    return SourceOptions(paths[0], rows, payload, _policy(options), UnreadableFiles(unreadable))


def table(parsed: SourceOptions, of_kind: Mapping[str, Table]) -> Table:
    """Return the table that the options ask for."""
    found = of_kind[parsed.rows]
    return tables.with_payload(found) if parsed.payload else found


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
