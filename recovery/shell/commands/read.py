"""`ledgerstore read`: read the entries of a ledger and check their digests.

kind                    entry, or gap (ids that are missing)
size                    of the record, its length word included
where                   the entry log and the offset of the record's length word, or journal
ledger, entry, lac, length, digest_type, digest, payload
ok                      true, false, or null if not verified
last                    of a gap: the last missing id; `entry` is the first one
flaw, detail            a stable name of what is wrong; an explanation
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, StoreRefused, say
from recovery.shell.listing.ledger import UNREADABLE
from recovery.shell.listing.record import blank_cells, entry_cells, entry_columns
from recovery.shell.listing.store_view import check_ledger_exists, open_store_view
from recovery.shell.options import NumberRange, PayloadFormat
from recovery.shell.output import Column, Form, counted, number_column, row_writer
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, digester, master_key
from storage.entry.format import check_digest
from storage.entry.model import DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.errors import DigestUnknown, EntryUnreadable, NoSuchEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.output import Row
    from recovery.shell.passwords import Passwords
    from recovery.view.view import View
    from storage.entry.digest import Digester


@click.command()
@click.argument("ledger_id", metavar="ID", type=options.NumberType())
@options.store
@click.option("--from", "first", type=options.NumberType(), help="First entry id.")
@click.option("--to", "last", type=options.NumberType(), help="Last entry id, included.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N rows.")
@click.option(
    "--payload",
    type=click.Choice([payload.value for payload in PayloadFormat]),
    default=PayloadFormat.NONE.value,
    help="Print the payloads.  [default: none]",
)
@click.option("--raw", is_flag=True, help="Write only the payload of the entry --from, byte for byte.")
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    ledger_id: int,
    store: str,
    first: int | None,
    last: int | None,
    limit: int | None,
    payload: str,
    raw: object,
    passwords: Passwords,
    form: Form,
) -> None:
    """Read the entries of a ledger, from journals and entry logs, and check their digests.

    STORE is a store, which another process may have open, or a bookie's directory. SIZE includes the length
    word. OK is ok, BAD, or ? if the digest cannot be checked, because a MAC needs the password of the ledger.
    Missing ids are listed as gaps. A gap is no finding, because a bookie may hold only a part of a ledger. An
    entry that exists but cannot be read is a finding.

    \b
    Examples:
      ledgerstore read 7 /data/store --from 100 --to 200 --payload text
      ledgerstore read 7 /data/store --from 100 --raw > payload
      ledgerstore read 7 /data/bookie --password-file secrets --ndjson | jq 'select(.ok == false)'
    """
    if last is not None and last < (first or 0):
        raise click.UsageError("--to is smaller than --from")
    if raw:
        _check_raw(first, last, form)
    with open_store_view(store) as view:
        check_ledger_exists(view, ledger_id)
        digester, complaint = _digester_and_complaint(view, ledger_id, passwords)
        if complaint is not None:
            say(complaint)
        if raw:
            is_sound = _write_raw(view, ledger_id, first or 0, digester)
        else:
            listing = EntryListing(view, ledger_id, digester, PayloadFormat(payload))
            _list(listing, NumberRange(first or 0, last), limit, form)
            is_sound = not listing.unreadable
        ctx.exit(Exit.CLEAN if is_sound and complaint is None and not view.findings else Exit.FINDINGS)


def _list(listing: EntryListing, span: NumberRange, limit: int | None, form: Form) -> None:
    out = row_writer(form, _columns(listing.payload))
    for row in islice(listing.rows(span), limit):
        out.row(row)
    out.end()
    say(f"read {listing.ledger_id}: {listing}")


def _check_raw(first: int | None, last: int | None, form: Form) -> None:
    if first is None or last not in (None, first):
        raise click.UsageError("--raw writes one entry: give its id with --from")
    if form is not Form.TABLE:
        raise click.UsageError("--raw cannot be used with --json or --ndjson")


def _write_raw(view: View, ledger_id: int, entry_id: int, digester: Digester | None) -> object:
    """Write the payload of the entry to stdout. Return whether its digest is not wrong."""
    if digester is None:
        raise CannotDo(str(DigestUnknown(ledger_id)))
    try:
        data = view.data(ledger_id, entry_id)
    except EntryUnreadable as error:
        raise StoreRefused(str(error)) from error
    if data is None:
        raise CannotDo(str(NoSuchEntry(ledger_id, entry_id)))
    check = entry_format.check_digest(data, digester)
    sys.stdout.buffer.write(data[entry_format.HEAD.size + digester.digest_type.width :])
    words = {DigestCheck.OK: "verified", DigestCheck.MISMATCH: "its digest is wrong"}
    say(f"read {ledger_id}: entry {entry_id}, {words.get(check, 'not verified')}")
    return check is not DigestCheck.MISMATCH


def _columns(payload: PayloadFormat) -> list[Column]:
    return [
        Column("kind", width=5),
        number_column("size", rank=1),
        Column("where", rank=5),
        *entry_columns(payload, 6),
    ]


class EntryListing:
    """Lists the entries of one ledger, row by row. `str()` sums the rows up after the last one."""

    def __init__(self, view: View, ledger_id: int, digester: Digester | None, payload: PayloadFormat) -> None:
        self.unreadable = 0
        """Number of entries that are damaged or cannot be read."""
        self.ledger_id = ledger_id
        self.payload = payload
        self._view = view
        self._digester = digester
        self._entries = self._verified = self._gaps = self._missing = 0

    def rows(self, span: NumberRange) -> Iterator[Row]:
        """Yield the entries with these ids, and the gaps between them."""
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
        unknown = ", but may have existed" if self._view.may_have_lost_entries(self.ledger_id) else ""
        return self._row("gap", first) | {"last": last, "detail": f"{ids} missing{unknown}"}

    def _entry(self, entry_id: int) -> Row:
        self._entries += 1
        row = self._row("entry", entry_id)
        try:
            data = self._view.data(self.ledger_id, entry_id)
        except EntryUnreadable as error:
            return row | self._wrong(str(error))
        if data is None:
            return row | self._wrong("the ledger was deleted while it was read")
        return row | self._described(entry_id, data)

    def _described(self, entry_id: int, data: bytes) -> Row:
        known = self._digester
        check = DigestCheck.UNVERIFIED if known is None else entry_format.check_digest(data, known)
        self._verified += check is DigestCheck.OK
        self.unreadable += check is DigestCheck.MISMATCH
        return entry_cells(data, known, check, self.payload) | {
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
        return place | blank_cells(self.payload) | ids

    def __str__(self) -> str:
        """Return a summary such as `12 entries, 12 verified, 1 gap of 3 ids`."""
        unverified = self._entries - self._verified - self.unreadable
        parts = [counted(self._entries, "entry", "entries"), f"{self._verified} verified"]
        parts += [f"{unverified} unverified"] if unverified else []
        parts += [f"{self.unreadable} UNREADABLE"] if self.unreadable else []
        parts += [f"{counted(self._gaps, 'gap')} of {counted(self._missing, 'id')}"] if self._gaps else []
        return ", ".join(parts)


_TRIED_MAX = 64
"""Number of entries to try if the key is not known. One that verifies proves the password."""


def _digester_and_complaint(
    view: View, ledger_id: int, passwords: Passwords
) -> tuple[Digester | None, str | None]:
    """Return the digester of the ledger, and a complaint if the given password is wrong."""
    known, password = view.digester(ledger_id), passwords.of(ledger_id)
    if password is None or known is None or known.digest_type is not DigestType.MAC:
        return known, None
    why = _misfit(view, ledger_id, password)
    if why is None:
        return digester(DigestType.MAC, password), None
    return known, f"ledger {ledger_id}: wrong password: {why}; its entries stay unverified"


def _misfit(view: View, ledger_id: int, password: bytes) -> str | None:
    key = view.metadata(ledger_id).master_key
    if key is not None:
        return None if key == master_key(password) else "the key of the ledger is that of another password"
    tried = islice(_readable_entries(view, ledger_id), _TRIED_MAX)
    mac = digester(DigestType.MAC, password)
    if any(check_digest(data, mac) is DigestCheck.OK for data in tried):
        return None
    return "the key is not known, and none of its first entries verifies with it"


def _readable_entries(view: View, ledger_id: int) -> Iterator[bytes]:
    for entry_id in view.ids(ledger_id):
        try:
            data = view.data(ledger_id, entry_id)
        except EntryUnreadable:
            continue
        if data is not None:
            yield data
