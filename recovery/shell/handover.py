"""`ledgerstore handover`: a store made ready for a bookie, and what is to be done next.

directory                   the store
bookie_id, instance_id      what its cookies say now
mark                        where the bookie begins to replay
last_log                    the newest entry log, as lastId says it; null: there is none
ledgers                     that exist
keys, fences, explicit_lacs restated in the new journal
complete                    true: replaying it, a bookie knows all of them, and forgets nothing
logs_written                entry logs that were written anew: cut to what counts, and sealed
blanked                     records of deleted ledgers that are fillers now
trimmed                     journals that were removed: what they held is in the logs
quarantined                 places whose bytes never counted, kept under quarantine/
unproven                    ledgers whose key nobody knows
deleted                     deleted ledgers of which damage may hide records
limbo                       ledgers of which entries may be missing
findings                    how many, each told on stderr
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options, upright
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.tally import counted
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.handover import HandedOver
    from recovery.shell.columns import Row

_MEANINGS = {
    "ledgers": "that exist",
    "keys": "restated in the new journal",
    "fences": "restated in the new journal",
    "explicit_lacs": "restated in the new journal",
    "logs_written": "entry logs written anew: cut to what counts, and sealed",
    "blanked": "records of deleted ledgers that are fillers now",
    "trimmed": "journals removed: what they held is in the logs",
    "quarantined": "places whose bytes never counted, kept under quarantine/",
    "unproven": "ledgers whose key nobody knows",
    "deleted": "deleted ledgers of which damage may hide records",
    "limbo": "ledgers of which entries may be missing",
}
_BAD_UNLESS_ZERO = ("deleted",)
_NAMED_MAX = 20


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--bookie-id", metavar="HOST:PORT", help="Write this into the cookies.")
@click.option("--journal-dir", metavar="PATH", help="The same for the bookie's journalDirectory.")
@click.option("--ledger-dir", metavar="PATH", help="The same for its ledgerDirectories.")
@click.option("--instance-id", metavar="ID", help="The same for the cluster's instance id.")
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    form: Form,
    bookie_id: str | None,
    journal_dir: str | None,
    ledger_dir: str | None,
    instance_id: str | None,
) -> None:
    """Make a store ready for a bookie with DbLedgerStorage.

    DIR is a store: the directory that has journal/ and ledgers/ in it. Nobody may have it open. It is
    recovered and checkpointed; its entry logs are cut to what counts and sealed; one new journal says each
    ledger's key, fence and explicit LAC, and the mark is in front of it; all other journals go. What never
    counted is kept under quarantine/. What is left to do with BookKeeper's own tools is told on stderr.

    It stays a store of ours: opened again it goes on, and run again this does it again.

    \b
    Examples:
      ledgerstore handover data
      ledgerstore handover data --bookie-id 10.0.0.1:3181 --instance-id 5b2e9c30 \\
        --journal-dir /data/journal --ledger-dir /data/ledgers
    """
    from recovery.handover import Address, hand_over
    from storage.errors import StoreError

    path = Path(directory)
    if not path.is_dir():
        raise CannotDo(f"{'not a directory' if path.exists() else 'no such directory'}: {path}")
    try:
        done = hand_over(path, Address(bookie_id, journal_dir, ledger_dir, instance_id))
    except StoreError as error:
        raise CannotDo(str(error)) from error
    row = _row(path, done)
    out = writer(form, upright.COLUMNS)
    for line in upright.lines(row, _MEANINGS, _BAD_UNLESS_ZERO) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    for told in (*_warnings(done), *_next_steps(path, done)):
        say(told)
    say(f"handover: {_verdict(row)}")
    ctx.exit(Exit.FINDINGS if done.findings else Exit.CLEAN)


def _row(path: Path, done: HandedOver) -> Row:
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
        "complete": done.facts.suffice,
        "logs_written": len(done.logs.written),
        "blanked": done.logs.blanked,
        "trimmed": len(done.trimmed),
        "quarantined": len(done.saved),
        "unproven": len(done.facts.unproven),
        "deleted": len(done.deleted),
        "limbo": len(done.limbo),
        "findings": len(done.findings),
    }


# ── what a person has to know ────────────────────────────────────────────────────────────────────────────


def _warnings(done: HandedOver) -> Iterator[str]:
    for finding in done.findings:
        yield f"finding: {finding}"
    for tail in done.saved:
        yield f"kept aside: {tail}"
    if done.facts.unproven:
        yield f"no key is known of {_named(done.facts.unproven)}"
    if done.deleted:
        yield f"a bookie may list again what was deleted, of {_named(done.deleted)}"
    if done.limbo:
        yield f"a bookie says of a missing entry that there is none, also of {_named(done.limbo)}"


def _named(ledger_ids: Sequence[int]) -> str:
    some = ", ".join(map(str, ledger_ids[:_NAMED_MAX]))
    more = len(ledger_ids) - _NAMED_MAX
    return f"ledger{'s' * (len(ledger_ids) > 1)} {some}" + (f" and {more} more" if more > 0 else "")


def _next_steps(path: Path, done: HandedOver) -> Iterator[str]:
    from recovery.founding import HOST

    current = path.absolute() / "ledgers" / "current"
    cookie, host = shlex.quote(str(current / "VERSION")), done.cookie.bookie_host
    yield "next, with the bookie's configuration, and before anything else touches the directory:"
    yield "  bookkeeper shell rebuild-db-ledgers-index"
    yield "  bookkeeper shell rebuild-db-ledger-locations-index"
    if done.facts.suffice:
        yield f"  rm -r {shlex.quote(str(current / 'ledgers'))}"
    yield f"  bookkeeper shell cookie_create -cf {cookie} {shlex.quote(host)}"
    yield "  bookkeeper bookie"
    if done.facts.suffice:
        yield "rm: only the second command needs what the first has made. In it each ledger is fenced and has"
        yield "no key; without it the bookie learns from the journal what is known of each, and keeps that"
    else:
        yield "the bookie will have every ledger fenced, and when it is started for the second time it has"
        yield f"forgotten all keys and explicit LACs: {_why_not(done)}"
    yield "cookie_create: unless the metadata store has that cookie already"
    if host == HOST:
        yield f"no bookie is called {host}: run this again with --bookie-id"
    yield "a bookie deletes the ledgers that its metadata store does not know"


def _why_not(done: HandedOver) -> str:
    return "not every key is known" if done.facts.unproven else "no ledger has an entry that can be read"


def _verdict(row: Row) -> str:
    ledgers = counted(int(row["ledgers"] or 0), "ledger")
    wrong = counted(int(row["findings"] or 0), "finding") if row["findings"] else "no findings"
    lossy = "" if row["complete"] else ", keys and explicit LACs for the bookie's first run only"
    return f"{ledgers} ready for {row['bookie_id']}, replayed from {row['mark']} on, {wrong}{lossy}"
