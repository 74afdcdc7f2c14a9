"""The cells of a ledger, the same in `ledgers` and in `ledger`.

ledger
entries, first, last    number of entries, and their smallest and largest id
bytes                   length of all payloads, as the last entry states it
lac                     the largest last add confirmed that the writer stated, in an entry or explicitly
explicit_lac            the largest one that the writer stated explicitly
digest_type, known_by   the type of its digests, and whether it was declared or inferred from the entries
fenced                  whether its writer can no longer add entries
proven                  whether the master key is known; without it no writer can be authorised
in_limbo                whether entries may be missing here that other bookies have
in                      where its entries are: journal, log or both
flaw, detail            why its last entry cannot be read; an explanation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.output import Column, free_text, number_column
from storage.commit.pending import confirmed_by
from storage.entry.model import NO_ENTRY
from storage.errors import EntryUnreadable

if TYPE_CHECKING:
    from recovery.shell.output import Row
    from recovery.view.view import View
    from storage.entry.format import Head


COLUMNS = [
    number_column("ledger"),
    number_column("entries"),
    number_column("first", rank=4),
    number_column("last"),
    number_column("bytes"),
    number_column("lac", rank=2),
    number_column("explicit_lac", rank=5),
    Column("digest_type", rank=3),
    Column("fenced"),
    Column("proven", rank=6),
    Column("in", rank=1),
    Column("detail", text=free_text),
]

UNREADABLE = "UNREADABLE"


def ledger_cells(view: View, ledger_id: int) -> Row:
    """Return the cells of a ledger. Of its entries, only the last one is read."""
    return view.consistently(lambda: _describe(view, ledger_id))


def _describe(view: View, ledger_id: int) -> Row:
    row: Row = {
        "ledger": ledger_id,
        "entries": view.count(ledger_id),
        "first": view.first_id(ledger_id),
        "last": view.last_id(ledger_id),
        "bytes": None,
        "lac": None,
        **_facts(view, ledger_id),
        "in": _where_entries_are(view, ledger_id),
        "flaw": None,
        "detail": None,
    }
    try:
        end = view.end(ledger_id)
    except EntryUnreadable as error:
        return row | {"flaw": UNREADABLE, "detail": str(error)}
    limbo = "in limbo: entries may be missing" if row["in_limbo"] else None
    return row | _ends(view, ledger_id, end) | {"detail": limbo}


def _ends(view: View, ledger_id: int, end: Head | None) -> Row:
    lac = view.last_add_confirmed(ledger_id, end)
    truncation = view.metadata(ledger_id).truncation
    length = end.length if end is not None else 0 if truncation is None else truncation.length
    return {"bytes": length, "lac": None if lac == NO_ENTRY else lac}


def _facts(view: View, ledger_id: int) -> Row:
    facts, digester = view.metadata(ledger_id), view.digester(ledger_id)
    explicit = confirmed_by(facts)
    return {
        "explicit_lac": None if explicit == NO_ENTRY else explicit,
        "digest_type": None if digester is None else digester.digest_type.name,
        "known_by": None if digester is None else facts.known_by.name.lower(),
        "fenced": facts.fenced,
        "proven": facts.master_key is not None,
        "in_limbo": facts.in_limbo,
    }


def _where_entries_are(view: View, ledger_id: int) -> str | None:
    found = view.whereabouts(ledger_id)
    match (found.journal_id is not None, found.location is not None):
        case (True, True):
            return "both"
        case (True, False):
            return "journal"
        case (False, True):
            return "log"
    return None
