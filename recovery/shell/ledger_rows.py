"""The rows about one ledger.

kind                    ledger; range (ids without a gap), more (ranges that are not listed); journal, log
                        (where its entries stand); newest; tombstone (of an earlier ledger of that id)
first, last, entries    ids, and how many
bytes                   of payload for the ledger; of records, length words included, for a log
where                   a file, with the offset of the record's length word where that is known
of the ledger only      ledger, lac, explicit_lac, digest_type, known_by, fenced, proven, in_limbo, in
flaw, detail            what is wrong; words
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from recovery.shell import ledger_cells
from recovery.shell.columns import Column, numbers
from recovery.shell.entry_cells import free_text
from storage import filenames
from storage.reading import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.columns import Row
    from recovery.view import View
    from storage.position import EntryLocation, LogPosition

COLUMNS = [
    Column("kind", width=9),
    numbers("first"),
    numbers("last"),
    numbers("entries"),
    numbers("bytes"),
    Column("where"),
    Column("detail", text=free_text),
]

_RANGES_SHOWN = 20


def rows(view: View, ledger_id: int, ranges_max: int | None = _RANGES_SHOWN) -> Iterator[Row]:
    """Everything about the ledger, `None` for all of its ranges."""
    yield _ledger(view, ledger_id)
    yield from _ranges(view, ledger_id, ranges_max)
    yield from _journaled(view, ledger_id)
    yield from _logs(view, ledger_id)
    yield from _newest(view, ledger_id)
    yield from _tombstone(view, ledger_id)


def _row(kind: str, **cells: int | str | None) -> Row:
    names = ("first", "last", "entries", "bytes", "where", "flaw", "detail")
    return {"kind": kind} | dict.fromkeys(names) | cells


def _ledger(view: View, ledger_id: int) -> Row:
    cells = ledger_cells.describe(view, ledger_id)
    words = cells["detail"] if cells["flaw"] else ", ".join(_words(cells))
    return _row("ledger") | cells | {"detail": words}


def _words(cells: Row) -> Iterator[str]:
    digest_type, known_by = cells["digest_type"], cells["known_by"]
    yield "digest type unknown" if digest_type is None else f"{digest_type} ({known_by})"
    yield "key proven" if cells["proven"] else "key unproven: takes no more entries"
    yield "fenced" if cells["fenced"] else "open"
    yield from (f"{name} {cells[name]}" for name in ("lac", "explicit_lac") if cells[name] is not None)
    if cells["in_limbo"]:
        yield "in limbo: entries may be missing"


def _ranges(view: View, ledger_id: int, ranges_max: int | None) -> Iterator[Row]:
    found = ranges(view.ids(ledger_id))
    for ids in islice(found, ranges_max):
        yield _row("range", first=ids[0], last=ids[-1], entries=len(ids))
    first = last = None
    count = entries = 0
    for ids in found:
        first, last = ids[0] if first is None else first, ids[-1]
        count, entries = count + 1, entries + len(ids)
    if count:
        yield _row("more", first=first, last=last, entries=entries, detail=f"{count} more ranges: see --all")


def _journaled(view: View, ledger_id: int) -> Iterator[Row]:
    journal_id = view.whereabouts(ledger_id).journal_id
    if journal_id is not None:
        ids = view.journaled_ids(ledger_id)
        where = filenames.journal(journal_id)
        yield _row("journal", first=ids[0], last=ids[-1], entries=len(ids), where=where)


@dataclass(slots=True)
class _Log:
    """What of the ledger lies in one log."""

    first: int
    last: int
    entries: int = 0
    size: int = 0
    unreadable: int = 0

    def take(self, entry_id: int, size: int | None) -> None:
        self.last = entry_id
        self.entries += 1
        self.size += size or 0
        self.unreadable += size is None


def _logs(view: View, ledger_id: int) -> Iterator[Row]:
    logs: dict[int, _Log] = {}
    for entry_id, location in view.places(ledger_id):
        log = logs.setdefault(location.log_id, _Log(entry_id, entry_id))
        log.take(entry_id, view.size_at(location))
    for log_id, log in logs.items():
        row = _row("log", first=log.first, last=log.last, entries=log.entries, bytes=log.size)
        row["where"] = filenames.entry_log(log_id)
        if log.unreadable:
            row |= {"flaw": ledger_cells.UNREADABLE, "detail": f"{log.unreadable} of them cannot be read"}
        yield row


def _newest(view: View, ledger_id: int) -> Iterator[Row]:
    last, found = view.last_id(ledger_id), view.whereabouts_of_last(ledger_id)
    if found.journal_id is not None:
        yield _row("newest", first=last, last=last, entries=1, where=filenames.journal(found.journal_id))
    if found.location is not None:
        yield _row("newest", first=last, last=last, entries=1, where=_place(found.location))


def _place(location: EntryLocation) -> str:
    return str(location.position)


def _tombstone(view: View, ledger_id: int) -> Iterator[Row]:
    tombstone = view.facts(ledger_id).tombstone
    if tombstone is not None:
        words = "an earlier ledger of this id was deleted: its records before this are dead"
        detail = f"{words}, {_dead(tombstone.log)}"
        yield _row("tombstone", where=str(tombstone.journal), detail=detail)


def _dead(log: LogPosition | None) -> str:
    if log is None:
        return "and all in logs"
    return f"and those before {log}" if log.offset else "and none in a log"
