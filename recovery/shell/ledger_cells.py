"""The cells that a ledger has wherever it is shown.

ledger
entries, first, last    how many entries, and their smallest and largest id
bytes                   of payload, as the last entry counts them
lac                     the largest last add confirmed that its writer has said, also explicitly
explicit_lac            what was said explicitly
digest_type, known_by   how its entries are protected, and whether that was declared or inferred from them
fenced                  closed to its writer
proven                  whether its key is known; no means that nobody can be told from its writer
in_limbo                entries that others have may be missing here
in                      journal, log or both: where its entries stand
flaw, detail            why its last entry cannot be read; words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Column, numbers
from recovery.shell.entry_cells import free_text
from storage.entry import NO_ENTRY
from storage.errors import EntryUnreadable
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from recovery.shell.columns import Row
    from recovery.view import View
    from storage.codec.entry import Head

COLUMNS = [
    numbers("ledger"),
    numbers("entries"),
    numbers("first", rank=4),
    numbers("last"),
    numbers("bytes"),
    numbers("lac", rank=2),
    numbers("explicit_lac", rank=5),
    Column("digest_type", rank=3),
    Column("fenced"),
    Column("proven", rank=6),
    Column("in", rank=1),
    Column("detail", text=free_text),
]

UNREADABLE = "UNREADABLE"


def describe(view: View, ledger_id: int) -> Row:
    """Everything about a ledger that needs no look at any but its last entry."""
    return view.steadily(lambda: _describe(view, ledger_id))


def _describe(view: View, ledger_id: int) -> Row:
    row: Row = {
        "ledger": ledger_id,
        "entries": view.count(ledger_id),
        "first": view.first_id(ledger_id),
        "last": view.last_id(ledger_id),
        "bytes": None,
        "lac": None,
        **_facts(view, ledger_id),
        "in": _standing(view, ledger_id),
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
    return {"bytes": 0 if end is None else end.length, "lac": None if lac == NO_ENTRY else lac}


def _facts(view: View, ledger_id: int) -> Row:
    facts, digester = view.facts(ledger_id), view.digester(ledger_id)
    explicit = confirmed_by(facts)
    return {
        "explicit_lac": None if explicit == NO_ENTRY else explicit,
        "digest_type": None if digester is None else digester.digest_type.name,
        "known_by": None if digester is None else facts.known_by.name.lower(),
        "fenced": facts.fenced,
        "proven": facts.master_key is not None,
        "in_limbo": facts.in_limbo,
    }


def _standing(view: View, ledger_id: int) -> str | None:
    found = view.whereabouts(ledger_id)
    match (found.journal_id is not None, found.location is not None):
        case (True, True):
            return "both"
        case (True, False):
            return "journal"
        case (False, True):
            return "log"
    return None
