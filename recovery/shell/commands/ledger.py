"""`ledgerstore ledger`: show one ledger, and where its entries are stored.

kind                    ledger; range (consecutive ids); more (ranges that are not listed); journal, log
                        (files that hold its entries); newest; truncation; tombstone (of an earlier
                        ledger of this id)
first, last, entries    ids, and their number
bytes                   for the ledger: of payload; for a log: of records, length words included
where                   a file, with the offset of the length word of the record where that is known
only for the ledger     ledger, lac, explicit_lac, digest_type, known_by, fenced, proven, in_limbo, in
flaw, detail            a stable name of what is wrong; an explanation

With the address of a cluster the rows are those of `recovery/shell/listing/cluster_ledger.py`:

kind                    ledger; segment (the bookies of a range of entries); custom (stored by the
application)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from recovery.shell import cluster_metadata, options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.listing.ledger import UNREADABLE, ledger_cells
from recovery.shell.listing.store_view import check_ledger_exists, open_store_view
from recovery.shell.output import Column, counted, free_text, number_column, row_writer
from storage.disk import filenames
from storage.read.points import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.cluster_metadata import MetadataConnection
    from recovery.shell.output import Form, Row
    from recovery.view.view import View
    from storage.entry.position import EntryLocation, LogPosition


@click.command()
@click.argument("ledger_id", metavar="ID", type=options.NumberType())
@options.store
@click.option(
    "--all", "everything", is_flag=True, help="List all ranges of entry ids, not only the first 20."
)
@cluster_metadata.connection
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    ledger_id: int,
    store: str,
    everything: object,
    connection: MetadataConnection,
    form: Form,
) -> None:
    """Show one ledger, and where its entries are stored.

    STORE is a store, which another process may have open, or a bookie's directory. The rows are: the ledger,
    the ranges of its entry ids, the journal and the entry logs that hold its entries, the place of its newest
    entry, its truncation, and the tombstone of an earlier ledger with the same id.

    STORE can also be the address of a cluster's metadata. Then the rows are what the metadata says of the
    ledger, the bookies of each segment, and what the application has stored. A password is never shown.

    \b
    Examples:
      ledgerstore ledger 7 /data/store
      ledgerstore ledger 7 zk://localhost:2181/ledgers
      ledgerstore ledger 7 /data/store --json | jq '.[] | select(.kind == "log")'
    """
    if cluster_metadata.is_address(store):
        from recovery.shell.listing.cluster_ledgers import show_ledger

        found = connection.run("ledger", store, lambda znodes, at: show_ledger(znodes, at, ledger_id, form))
        say(f"ledger {ledger_id}: {found.state.name}, {counted(len(found.segments), 'segment')}")
        ctx.exit(Exit.CLEAN)
    with open_store_view(store) as view:
        check_ledger_exists(view, ledger_id)
        out = row_writer(form, _COLUMNS)
        unreadable, words = 0, ""
        for row in _rows(view, ledger_id, *([None] if everything else [])):
            out.row(row)
            unreadable += row["flaw"] is not None
            if row["kind"] == "ledger":
                words = counted(int(row["entries"] or 0), "entry", "entries")
        out.end()
        say(f"ledger {ledger_id}: {words}" + (", some of it cannot be read" if unreadable else ""))
        ctx.exit(Exit.FINDINGS if unreadable or view.findings else Exit.CLEAN)


_COLUMNS = [
    Column("kind", width=10),
    number_column("first"),
    number_column("last"),
    number_column("entries"),
    number_column("bytes"),
    Column("where"),
    Column("detail", text=free_text),
]

_RANGES_SHOWN = 20


def _rows(view: View, ledger_id: int, ranges_max: int | None = _RANGES_SHOWN) -> Iterator[Row]:
    """Yield all rows of a ledger. `ranges_max` is `None` for all ranges."""
    yield _ledger_row(view, ledger_id)
    yield from _range_rows(view, ledger_id, ranges_max)
    yield from _journal_row(view, ledger_id)
    yield from _log_rows(view, ledger_id)
    yield from _newest_rows(view, ledger_id)
    yield from _truncation_row(view, ledger_id)
    yield from _tombstone_row(view, ledger_id)


def _row(kind: str, **cells: int | str | None) -> Row:
    names = ("first", "last", "entries", "bytes", "where", "flaw", "detail")
    return {"kind": kind} | dict.fromkeys(names) | cells


def _ledger_row(view: View, ledger_id: int) -> Row:
    cells = ledger_cells(view, ledger_id)
    words = cells["detail"] if cells["flaw"] else ", ".join(_words(cells))
    return _row("ledger") | cells | {"detail": words}


def _words(cells: Row) -> Iterator[str]:
    digest_type, known_by = cells["digest_type"], cells["known_by"]
    yield "digest type unknown" if digest_type is None else f"{digest_type} ({known_by})"
    yield "key proven" if cells["proven"] else "key unproven: no more entries are accepted"
    yield "fenced" if cells["fenced"] else "open"
    yield from (f"{name} {cells[name]}" for name in ("lac", "explicit_lac") if cells[name] is not None)
    if cells["in_limbo"]:
        yield "in limbo: entries may be missing"


def _range_rows(view: View, ledger_id: int, ranges_max: int | None) -> Iterator[Row]:
    found = ranges(view.ids(ledger_id))
    for ids in islice(found, ranges_max):
        yield _row("range", first=ids[0], last=ids[-1], entries=len(ids))
    first = last = None
    count = entries = 0
    for ids in found:
        first, last = ids[0] if first is None else first, ids[-1]
        count, entries = count + 1, entries + len(ids)
    if count:
        yield _row("more", first=first, last=last, entries=entries, detail=f"{count} more ranges: use --all")


def _journal_row(view: View, ledger_id: int) -> Iterator[Row]:
    journal_id = view.whereabouts(ledger_id).journal_id
    if journal_id is not None:
        ids = view.journaled_ids(ledger_id)
        where = filenames.journal(journal_id)
        yield _row("journal", first=ids[0], last=ids[-1], entries=len(ids), where=where)


@dataclass(slots=True)
class _LogShare:
    """The entries of the ledger in one entry log."""

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


def _log_rows(view: View, ledger_id: int) -> Iterator[Row]:
    logs: dict[int, _LogShare] = {}
    for entry_id, location in view.places(ledger_id):
        log = logs.setdefault(location.log_id, _LogShare(entry_id, entry_id))
        log.take(entry_id, view.size_at(location))
    for log_id, log in logs.items():
        row = _row("log", first=log.first, last=log.last, entries=log.entries, bytes=log.size)
        row["where"] = filenames.entry_log(log_id)
        if log.unreadable:
            row |= {"flaw": UNREADABLE, "detail": f"{log.unreadable} of them cannot be read"}
        yield row


def _newest_rows(view: View, ledger_id: int) -> Iterator[Row]:
    last, found = view.last_id(ledger_id), view.whereabouts_of_last(ledger_id)
    if found.journal_id is not None:
        yield _row("newest", first=last, last=last, entries=1, where=filenames.journal(found.journal_id))
    if found.location is not None:
        yield _row("newest", first=last, last=last, entries=1, where=_place(found.location))


def _place(location: EntryLocation) -> str:
    return str(location.position)


def _truncation_row(view: View, ledger_id: int) -> Iterator[Row]:
    first_entry_id = view.first_entry_id(ledger_id)
    if first_entry_id:
        detail = f"the entries before {first_entry_id} were truncated: their records are dead"
        yield _row("truncation", first=first_entry_id, detail=detail)


def _tombstone_row(view: View, ledger_id: int) -> Iterator[Row]:
    tombstone = view.metadata(ledger_id).tombstone
    if tombstone is not None:
        words = "an earlier ledger of this id was deleted: its records before this position are dead"
        detail = f"{words}, {_dead(tombstone.log)}"
        yield _row("tombstone", where=str(tombstone.journal), detail=detail)


def _dead(log: LogPosition | None) -> str:
    if log is None:
        return "and all its records in entry logs"
    return f"and those before {log}" if log.offset else "and none in an entry log"
