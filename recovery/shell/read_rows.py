"""The rows of a ledger that is read.

kind                    entry; gap (ids that are not here)
size                    of the record, its length word included
where                   the entry log and the offset of the record's length word, or journal
ledger, entry, lac, length, digest_type, digest, payload
ok                      true, false, or null: not verified
last                    of a gap: the last id that is not here; `entry` is the first
flaw, detail            a stable name of what is wrong; words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell import entry_cells
from recovery.shell.columns import Column, numbers
from recovery.shell.ledger_cells import UNREADABLE
from recovery.shell.tally import counted
from storage.codec import entry as entry_codec
from storage.codec.digest import DigestCheck
from storage.errors import EntryUnreadable
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.columns import Row
    from recovery.shell.wanted import Payload, Span
    from recovery.view import View
    from storage.codec.digest import Digester


def columns(payload: Payload) -> list[Column]:
    return [
        Column("kind", width=5),
        numbers("size", rank=1),
        Column("where", rank=5),
        *entry_cells.columns(payload, 6),
    ]


class Listing:
    """The entries of one ledger, row by row; when the rows have ended, the counts say what they were."""

    def __init__(self, view: View, ledger_id: int, digester: Digester | None, payload: Payload) -> None:
        self.unreadable = 0
        """Entries that cannot be had as they were written."""
        self.ledger_id = ledger_id
        self.payload = payload
        self._view = view
        self._digester = digester
        self._entries = self._verified = self._gaps = self._missing = 0

    def rows(self, span: Span) -> Iterator[Row]:
        """The entries with these ids, and what is missing between them."""
        due = span.first
        for entry_id in self._view.ids(self.ledger_id, span.first, span.last):
            if entry_id > due:
                yield self._gap(due, entry_id - 1)
            yield self._entry(entry_id)
            due = entry_id + 1
        if span.last is not None and span.last >= due:
            yield self._gap(due, span.last)

    def _gap(self, first: int, last: int) -> Row:
        self._gaps += 1
        self._missing += last - first + 1
        ids = f"entry {first} is" if first == last else f"entries {first} to {last} are"
        unknown = ", and may have been" if self._view.may_lack(self.ledger_id) else ""
        return self._row("gap", first) | {"last": last, "detail": f"{ids} not here{unknown}"}

    def _entry(self, entry_id: int) -> Row:
        self._entries += 1
        row = self._row("entry", entry_id)
        try:
            data = self._view.data(self.ledger_id, entry_id)
        except EntryUnreadable as error:
            return row | self._wrong(str(error))
        if data is None:
            return row | self._wrong("gone: the ledger was deleted while it was read")
        return row | self._described(entry_id, data)

    def _described(self, entry_id: int, data: bytes) -> Row:
        known = self._digester
        check = DigestCheck.UNVERIFIED if known is None else entry_codec.check_digest(data, known)
        self._verified += check is DigestCheck.OK
        self.unreadable += check is DigestCheck.MISMATCH
        return entry_cells.describe(data, known, check, self.payload) | {
            "size": LENGTH_WORD_SIZE + len(data),
            "where": self._where(entry_id),
        }

    def _where(self, entry_id: int) -> str:
        location = self._view.location(self.ledger_id, entry_id)
        return "journal" if location is None else str(location.position)

    def _wrong(self, words: str) -> Row:
        self.unreadable += 1
        return {"ok": False, "flaw": UNREADABLE, "detail": words}

    def _row(self, kind: str, entry_id: int) -> Row:
        place: Row = {"kind": kind, "size": None, "where": None}
        ids: Row = {"ledger": self.ledger_id, "entry": entry_id, "last": None}
        return place | entry_cells.blank(self.payload) | ids

    def __str__(self) -> str:
        """Such as `12 entries, 12 verified, 1 gap of 3 ids`."""
        unverified = self._entries - self._verified - self.unreadable
        parts = [counted(self._entries, "entry", "entries"), f"{self._verified} verified"]
        parts += [f"{unverified} unverified"] if unverified else []
        parts += [f"{self.unreadable} UNREADABLE"] if self.unreadable else []
        parts += [f"{counted(self._gaps, 'gap')} of {counted(self._missing, 'id')}"] if self._gaps else []
        return ", ".join(parts)
