"""`ledgerstore handover`: prepare a store for a bookie, and print the next steps.

directory                   the store
bookie_id, instance_id      in its cookies now
mark                        where the bookie begins to replay
last_log                    id of the newest entry log, as in lastId; null if there is none
ledgers                     existing ledgers
keys, fences, explicit_lacs restated in the new journal
complete                    whether a bookie that replays the journal keeps all keys and explicit LACs
logs_written                entry logs written again: cut to their valid content, and sealed
blanked                     records of deleted ledgers, overwritten with fillers
trimmed                     journals removed, because their entries are in the entry logs
quarantined                 byte ranges that were never valid, kept under quarantine/
unproven                    ledgers whose key is in no journal
deleted                     deleted ledgers that may have more records in damaged bytes
limbo                       ledgers that may lack entries
findings                    number of findings; each is printed on stderr
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.output import KEY_VALUE_COLUMNS, Form, counted, key_value_rows, row_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.handover.handover import HandoverReport
    from recovery.shell.output import Row

_MEANINGS = {
    "ledgers": "existing ledgers",
    "keys": "restated in the new journal",
    "fences": "restated in the new journal",
    "explicit_lacs": "restated in the new journal",
    "logs_written": "entry logs written again: cut to their valid content, and sealed",
    "blanked": "records of deleted ledgers, overwritten with fillers",
    "trimmed": "journals removed, because their entries are in the entry logs",
    "quarantined": "byte ranges that were never valid, kept under quarantine/",
    "unproven": "ledgers whose key is in no journal",
    "deleted": "deleted ledgers that may have more records in damaged bytes",
    "limbo": "ledgers that may lack entries",
}
_BAD_UNLESS_ZERO = ("deleted",)
_NAMED_MAX = 20


@click.command()
@options.store_to_change
@click.option("--bookie-id", metavar="HOST:PORT", help="Bookie id to write into the cookies.")
@click.option("--journal-dir", metavar="PATH", help="journalDirectory of the bookie, for the cookies.")
@click.option("--ledger-dir", metavar="PATH", help="ledgerDirectories of the bookie, for the cookies.")
@click.option("--instance-id", metavar="ID", help="Instance id of the cluster, for the cookies.")
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    store: str,
    form: Form,
    bookie_id: str | None,
    journal_dir: str | None,
    ledger_dir: str | None,
    instance_id: str | None,
) -> None:
    """Prepare a store for an Apache BookKeeper bookie with DbLedgerStorage.

    STORE is the directory with journal/ and ledgers/ in it. No process may have it open. The command recovers
    the store and makes a checkpoint. It cuts the entry logs to their valid content and seals them. It writes
    one new journal with the key, the fence and the explicit LAC of each ledger, sets the mark to its
    beginning, and removes all other journals. Bytes that were never valid are kept under quarantine/. The
    remaining steps, with BookKeeper's own tools, are printed to stderr.

    The directory is still a store: it can be opened again, and the command can be run again.

    \b
    Examples:
      ledgerstore handover data
      ledgerstore handover data --bookie-id 10.0.0.1:3181 --instance-id 5b2e9c30 \\
        --journal-dir /data/journal --ledger-dir /data/ledgers
    """
    from recovery.handover.handover import BookieAddress, hand_over
    from storage.errors import StoreError

    path = Path(store)
    if not path.is_dir():
        raise CannotDo(f"{'not a directory' if path.exists() else 'no such directory'}: {path}")
    try:
        done = hand_over(path, BookieAddress(bookie_id, journal_dir, ledger_dir, instance_id))
    except StoreError as error:
        raise CannotDo(str(error)) from error
    row = _row(path, done)
    out = row_writer(form, KEY_VALUE_COLUMNS)
    for line in key_value_rows(row, _MEANINGS, _BAD_UNLESS_ZERO) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    for text in (*_warnings(done), *_next_steps(path, done)):
        say(text)
    say(f"handover: {_verdict(row)}")
    ctx.exit(Exit.FINDINGS if done.findings else Exit.CLEAN)


def _row(path: Path, done: HandoverReport) -> Row:
    return {
        "directory": str(path),
        "bookie_id": done.cookie.bookie_host,
        "instance_id": done.cookie.instance_id,
        "mark": str(done.mark),
        "last_log": None if done.last_log is None else f"{done.last_log:x}",
        "ledgers": done.facts.ledgers,
        "keys": done.facts.keys,
        "fences": done.facts.fences,
        "explicit_lacs": done.facts.explicit_lacs,
        "complete": done.facts.is_sufficient,
        "logs_written": len(done.logs.written),
        "blanked": done.logs.blanked,
        "trimmed": len(done.trimmed),
        "quarantined": len(done.saved),
        "unproven": len(done.facts.unproven),
        "deleted": len(done.deleted),
        "limbo": len(done.limbo),
        "findings": len(done.findings),
    }


# ── warnings and next steps ──────────────────────────────────────────────────────────────────────────────


def _warnings(done: HandoverReport) -> Iterator[str]:
    for finding in done.findings:
        yield f"finding: {finding}"
    for tail in done.saved:
        yield f"quarantined: {tail}"
    if done.facts.unproven:
        yield f"the key is not known of {_named(done.facts.unproven)}"
    if done.deleted:
        yield f"a bookie may list deleted entries again, of {_named(done.deleted)}"
    if done.limbo:
        yield f"a bookie will deny missing entries that may exist elsewhere, of {_named(done.limbo)}"


def _named(ledger_ids: Sequence[int]) -> str:
    some = ", ".join(map(str, ledger_ids[:_NAMED_MAX]))
    more = len(ledger_ids) - _NAMED_MAX
    return f"ledger{'s' * (len(ledger_ids) > 1)} {some}" + (f" and {more} more" if more > 0 else "")


def _next_steps(path: Path, done: HandoverReport) -> Iterator[str]:
    from recovery.directory.layout import HOST

    current = path.absolute() / "ledgers" / "current"
    cookie, host = shlex.quote(str(current / "VERSION")), done.cookie.bookie_host
    yield "next steps, with the configuration of the bookie, before any other program uses the directory:"
    yield "  bookkeeper shell rebuild-db-ledgers-index"
    yield "  bookkeeper shell rebuild-db-ledger-locations-index"
    if done.facts.is_sufficient:
        yield f"  rm -r {shlex.quote(str(current / 'ledgers'))}"
    yield f"  bookkeeper shell cookie_create -cf {cookie} {shlex.quote(host)}"
    yield "  bookkeeper bookie"
    if done.facts.is_sufficient:
        yield "rm: only the second command needs the ledgers index that the first one has made. In that index"
        yield "each ledger is fenced and has no key; without it the bookie takes both from the journal"
    else:
        yield "the bookie will have every ledger fenced, and will lose all keys and explicit LACs when it is"
        yield f"started for the second time, because {_why_not(done)}"
    yield "cookie_create: only if the metadata store does not have this cookie yet"
    if host == HOST:
        yield f"{host} is not the id of a bookie: run handover again with --bookie-id"
    yield "note: a bookie deletes ledgers that are not in its metadata store"


def _why_not(done: HandoverReport) -> str:
    return "not every key is known" if done.facts.unproven else "no ledger has an entry that can be read"


def _verdict(row: Row) -> str:
    ledgers = counted(int(row["ledgers"] or 0), "ledger")
    wrong = counted(int(row["findings"] or 0), "finding") if row["findings"] else "no findings"
    lossy = "" if row["complete"] else ", with keys and explicit LACs for the first run of the bookie only"
    return f"{ledgers} ready for {row['bookie_id']}, replayed from {row['mark']} on, {wrong}{lossy}"
