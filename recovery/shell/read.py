"""`ledgerstore read`: the entries of a ledger, wherever they are."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from recovery.shell import ledger_password, options
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.look import Refused, looking_at, must_exist
from recovery.shell.read_rows import Listing, columns
from recovery.shell.wanted import Payload, Span
from recovery.shell.writers import Form, writer
from storage.codec import entry as entry_codec
from storage.codec.digest import DigestCheck
from storage.errors import DigestUnknown, EntryUnreadable, NoSuchEntry

if TYPE_CHECKING:
    from recovery.shell.passwords import Passwords
    from recovery.view import View
    from storage.codec.digest import Digester


@click.command()
@click.argument("ledger_id", metavar="ID", type=options.NumberType())
@click.argument("directory", metavar="[DIR]", default=".")
@click.option("--from", "first", type=options.NumberType(), help="The first entry id.")
@click.option("--to", "last", type=options.NumberType(), help="The last entry id.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after so many rows.")
@click.option(
    "--payload",
    type=click.Choice([payload.value for payload in Payload]),
    default=Payload.NONE.value,
    help="Print payloads too.",
)
@click.option("--raw", is_flag=True, help="The payload of the entry --from as it is, and nothing else.")
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    ledger_id: int,
    directory: str,
    first: int | None,
    last: int | None,
    limit: int | None,
    payload: str,
    raw: object,
    passwords: Passwords,
    form: Form,
) -> None:
    """Read a ledger's entries, from journals and entry logs, and check their digests.

    DIR is a store, perhaps open in another process, or a bookie's directory. SIZE counts the length word. OK
    is ok, BAD, or ? where nothing can verify the digest: a MAC needs the ledger's password. Ids that are not
    here are listed as gaps, which is no finding: a bookie may hold a part of a ledger only. An entry that is
    there and cannot be read is one.

    \b
    Examples:
      ledgerstore read 7 /data/store --from 100 --to 200 --payload text
      ledgerstore read 7 /data/store --from 100 --raw > payload
      ledgerstore read 7 /data/bookie --password-file secrets --ndjson | jq 'select(.ok == false)'
    """
    if last is not None and last < (first or 0):
        raise click.UsageError("--to lies before --from")
    if raw:
        _check_raw(first, last, form)
    with looking_at(directory) as view:
        must_exist(view, ledger_id)
        digester, complaint = ledger_password.verifier(view, ledger_id, passwords)
        if complaint is not None:
            say(complaint)
        if raw:
            is_sound = _write_raw(view, ledger_id, first or 0, digester)
        else:
            listing = Listing(view, ledger_id, digester, Payload(payload))
            _list(listing, Span(first or 0, last), limit, form)
            is_sound = not listing.unreadable
        ctx.exit(Exit.CLEAN if is_sound and complaint is None and not view.findings else Exit.FINDINGS)


def _list(listing: Listing, span: Span, limit: int | None, form: Form) -> None:
    out = writer(form, columns(listing.payload))
    for row in islice(listing.rows(span), limit):
        out.row(row)
    out.end()
    say(f"read {listing.ledger_id}: {listing}")


def _check_raw(first: int | None, last: int | None, form: Form) -> None:
    if first is None or last not in (None, first):
        raise click.UsageError("--raw is for one entry: name it with --from")
    if form is not Form.TABLE:
        raise click.UsageError("--raw takes no other form")


def _write_raw(view: View, ledger_id: int, entry_id: int, digester: Digester | None) -> object:
    """Whether nothing is wrong with what was written."""
    if digester is None:
        raise CannotDo(str(DigestUnknown(ledger_id)))
    try:
        data = view.data(ledger_id, entry_id)
    except EntryUnreadable as error:
        raise Refused(str(error)) from error
    if data is None:
        raise CannotDo(str(NoSuchEntry(ledger_id, entry_id)))
    check = entry_codec.check_digest(data, digester)
    sys.stdout.buffer.write(data[entry_codec.HEAD.size + digester.digest_type.width :])
    words = {DigestCheck.OK: "verified", DigestCheck.MISMATCH: "its digest is wrong"}
    say(f"read {ledger_id}: entry {entry_id}, {words.get(check, 'not verified')}")
    return check is not DigestCheck.MISMATCH
