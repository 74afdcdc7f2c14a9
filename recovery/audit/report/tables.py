"""The results as tables: findings, runs and parts, each with a stable schema.

Fingerprints are unsigned and stored in signed columns with the same bits, because Spark has no unsigned
64-bit numbers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.runs import RUN
from recovery.audit.model.store_facts import BookieIndexFacts, IndexFacts
from recovery.audit.model.store_tables import BEFORE_MARK, BOOKIE_INDEX, INDEX, JOURNAL, LEFTOVER, LOG
from recovery.audit.report import commands, figures
from recovery.audit.report.figures import WORDS
from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.store_tables import LedgerSums

_INT, _TEXT = pa.int64(), pa.string()


def _schema(columns: dict[str, pa.DataType], *optional: str) -> pa.Schema:
    return pa.schema([pa.field(name, kind, name in optional) for name, kind in columns.items()])


_IDENTITY = {"host": _TEXT, "bookie": _TEXT, "instance": _TEXT}
"""Which machine has read the store, and the bookie id and the instance id in its cookie: empty texts if
there are none. The path of a store may be the same on every machine.
"""

FINDINGS = _schema(
    {
        "severity": _TEXT,
        "kind": _TEXT,
        "title": _TEXT,
        "store": _TEXT,
        **_IDENTITY,
        "file": _TEXT,
        "offset": _INT,
        "end_offset": _INT,
        "ledger": _INT,
        "first_entry": _INT,
        "last_entry": _INT,
        "count": _INT,
        "detail": _TEXT,
        "look": _TEXT,
    },
    "offset",
    "end_offset",
    "ledger",
    "first_entry",
    "last_entry",
)
"""One row for each finding, in the order of the report. `look` is the command that shows it."""

RUNS = _schema(
    {
        "store": _TEXT,
        **_IDENTITY,
        "side": _TEXT,
        "file": _INT,
        "ledger": _INT,
        "step": _INT,
        "first_entry": _INT,
        "last_entry": _INT,
        "entries": _INT,
        "size": _INT,
        "places": _INT,
        "digests": _INT,
        "bad": _INT,
    }
)
"""One row for each run of entries. `side` is log, journal or index; `file` is the id of a log or
a journal.
"""

PARTS = _schema(
    {
        "store": _TEXT,
        **_IDENTITY,
        "side": _TEXT,
        "name": _TEXT,
        "file": _INT,
        "file_size": _INT,
        "records": _INT,
        "entries": _INT,
        "size": _INT,
        "bad": _INT,
        "flaws": _INT,
        "unverified": _INT,
        "note": _TEXT,
    },
    "file_size",
)
"""One row for each file that was read."""


def findings(report: AuditReport) -> pa.Table:
    identities = {store.store: _identity(store) for store in report.stores}
    unknown = dict.fromkeys(_IDENTITY, "")
    rows = (_finding(one) | identities.get(one.store, unknown) for one in report.findings)
    return _table(rows, FINDINGS)


def _identity(store: StoreReport) -> dict[str, str]:
    known = store.identity
    return {"host": known.host, "bookie": known.bookie_id, "instance": known.instance_id}


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "severity": WORDS[one.severity],
        "kind": one.kind,
        "title": KINDS[one.kind].title,
        "store": one.store,
        "file": one.file,
        "offset": one.offset,
        "end_offset": one.end,
        "ledger": one.ledger_id,
        "first_entry": one.first_entry,
        "last_entry": one.last_entry,
        "count": one.count,
        "detail": one.detail,
        "look": commands.command(one),
    }


def runs(report: AuditReport) -> pa.Table:
    """Return the runs of logs, journals and indexes. Journals have runs before and after the mark."""
    tables = [
        _runs(store, side, some) for store in report.stores for side, some in _sides(store) if len(some)
    ]
    return pa.concat_tables(tables) if tables else RUNS.empty_table()


def _sides(store: StoreReport) -> Iterator[tuple[str, Runs]]:
    tables = store.tables
    if tables is not None:
        yield "log", tables.runs((LOG, LEFTOVER))
        yield "journal", tables.runs((BEFORE_MARK, JOURNAL))
        yield "index", tables.runs((INDEX, BOOKIE_INDEX))


def _runs(store: StoreReport, side: str, some: Runs) -> pa.Table:
    texts = (store.store, *_identity(store).values(), side)
    words = [pa.repeat(pa.scalar(_text(text), _TEXT), len(some)) for text in texts]
    # In the order of RUN, which is that of the columns.
    numbers = [pa.array(np.ascontiguousarray(some[name]).view(np.int64)) for name in RUN.names or ()]
    return pa.Table.from_arrays([*words, *numbers], schema=RUNS)


def parts(report: AuditReport) -> pa.Table:
    return _table((row for store in report.stores for row in _parts(store)), PARTS)


def _parts(store: StoreReport) -> Iterator[dict[str, Any]]:
    held: defaultdict[tuple[str, int], list[LedgerSums]] = defaultdict(list)
    for one in figures.sums(store, LOG, LEFTOVER, JOURNAL, BEFORE_MARK):
        held["log" if one.source in (LOG, LEFTOVER) else "journal", one.file].append(one)
    held["index", 0] = figures.sums(store, INDEX, BOOKIE_INDEX)
    for log in store.facts.logs:
        note = "in use" if log.is_active else "left over" if log.is_leftover else ""
        columns = {"file_size": log.file_size, "records": log.records, "size": log.size, "note": note}
        yield _part(store, "log", filenames.entry_log(log.log_id), log.log_id, held, log) | columns
    for journal in store.facts.journals:
        columns = {"file_size": journal.file_size, "records": journal.records, "size": journal.file_size}
        name = filenames.journal(journal.journal_id)
        yield _part(store, "journal", name, journal.journal_id, held, journal) | columns
    index = store.facts.index
    if isinstance(index, IndexFacts):
        columns = {"records": index.count, "entries": index.count}
        yield _part(store, "index", filenames.INDEX, 0, held, index) | columns
    theirs = store.facts.bookie_index
    if isinstance(theirs, BookieIndexFacts):
        columns = {"records": theirs.count, "flaws": theirs.invalid}
        yield _part(store, "index", filenames.BOOKIE_LOCATIONS, 0, held, theirs) | columns


def _part(
    store: StoreReport,
    side: str,
    name: str,
    number: int,
    held: Mapping[tuple[str, int], list[LedgerSums]],
    facts: Any,
) -> dict[str, Any]:
    some = held.get((side, number), [])
    entries, bad = sum(one.entries for one in some), sum(one.bad for one in some)
    return {
        "store": store.store,
        **_identity(store),
        "side": side,
        "name": name,
        "file": number,
        "file_size": None,
        "records": 0,
        "entries": entries,
        "size": 0,
        "bad": bad,
        "flaws": len(getattr(facts, "flaws", ())),
        "unverified": sum(getattr(facts, "unverified", {}).values()),
        "note": "",
    }


def _table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    written = [
        {name: _text(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
    return pa.Table.from_pylist(written, schema)


def _text(text: str) -> str:
    """Return the text in UTF-8 for Arrow, because a path may contain other bytes."""
    return text.encode(errors="backslashreplace").decode()
