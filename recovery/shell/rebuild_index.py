"""`ledgerstore rebuild-index`: the index made again from entry logs, journals and ledger rows.

directory                   the store
whose                       who wrote there last: "ours", "a bookie's"
logs, bytes                 entry logs that were read, and how much that was
entries, ledgers            placed in the new index
unreadable                  entries of which there is no sound copy
holes                       places in entry logs where bytes make no sense
whole                       false: what is not found in the new index may be missing in it
fenced                      ledgers that take no ordinary adds
unproven                    ledgers of a bookie whose key no journal has: they can be read only
findings                    how many, each told on stderr
old_index                   where the index is kept that was there before; null: there was none
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options, upright
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.tally import counted
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from recovery.remaking import Remade
    from recovery.shell.columns import Row
    from storage.report import RebuildProgress

_MEANINGS = {
    "logs": "entry logs",
    "bytes": "in them",
    "entries": "placed in the new index",
    "ledgers": "with entries",
    "unreadable": "entries without a sound copy",
    "holes": "places in entry logs where bytes make no sense",
    "fenced": "ledgers that take no ordinary adds",
    "unproven": "ledgers whose key no journal has: read only",
}
_BAD_UNLESS_ZERO = ("unreadable", "holes")


@click.command()
@click.argument("directory", metavar="DIR")
@options.output
@click.pass_context
def command(ctx: click.Context, directory: str, form: Form) -> None:
    """Make the index again, from the entry logs and the journals.

    DIR is a store or a bookie's directory: the one that has journal/ and ledgers/ in it. Nobody may have it
    open. The old index is kept aside, and no log and no journal is touched.

    A store of ours makes a lost index again whenever it is opened; this does it without opening. A bookie's
    directory becomes a store of ours: keys, fences and explicit LACs are taken from the journals that are
    left, digest types from the entries. A ledger whose key is in none of them can be read and takes no adds.
    The journals behind the last checkpoint are replayed when the store is opened.

    \b
    Examples:
      ledgerstore rebuild-index /data/bookie
      ledgerstore rebuild-index /data/bookie --json | jq '.[0].unproven'
    """
    from storage.errors import StoreError

    try:
        row, findings = _remake(Path(directory))
    except StoreError as error:
        raise CannotDo(str(error)) from error
    out = writer(form, upright.COLUMNS)
    for line in upright.lines(row, _MEANINGS, _BAD_UNLESS_ZERO) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    for finding in findings:
        say(f"finding: {finding}")
    if row["old_index"] is not None:
        say(f"the old index is kept as {row['old_index']}")
    say(f"rebuild-index: {_verdict(row)}")
    ctx.exit(Exit.FINDINGS if findings else Exit.CLEAN)


def _remake(path: Path) -> tuple[Row, tuple[str, ...]]:
    from recovery.founding import Layout
    from recovery.remaking import check_may_be_remade, remake
    from recovery.shell.demo_watch import Stage
    from storage import filenames
    from storage.lmdb_place import LmdbPlace
    from storage.posix_files import PosixDirectory

    if not path.is_dir():
        raise CannotDo(f"{'not a directory' if path.exists() else 'no such directory'}: {path}")
    layout = Layout(PosixDirectory(path))
    check_may_be_remade(layout)
    stage = Stage("reading")

    def show(progress: RebuildProgress) -> None:
        if stage.is_due:
            stage.show(progress.fraction, f"{progress.entries:,} entries")

    with layout.root.lock(filenames.LOCK):
        had_an_index = filenames.INDEX in layout.ledgers.names()
        try:
            remade = remake(layout, LmdbPlace(layout.ledgers, layout.ledgers.path), show)
        finally:
            stage.end()
        kept = Path(layout.ledgers.path) / filenames.damaged(filenames.INDEX)
        row = _row(path, remade, str(kept) if had_an_index else None)
        remade.index.close()
    return row, remade.findings


def _row(path: Path, remade: Remade, old_index: str | None) -> Row:
    counts = [remade.index.count(ledger_id) for ledger_id in remade.index.ledgers()]
    return {
        "directory": str(path),
        "whose": "a bookie's" if remade.was_a_bookie_s else "ours",
        "logs": remade.figures.logs,
        "bytes": remade.figures.bytes,
        "entries": sum(counts),
        "ledgers": len(counts),
        "unreadable": remade.figures.unreadable,
        "holes": remade.figures.holes,
        "whole": remade.index.state().is_whole,
        "fenced": sum(row.fenced for row in remade.rows.values()),
        "unproven": sum(row.master_key is None for row in remade.rows.values()),
        "findings": len(remade.findings),
        "old_index": old_index,
    }


def _verdict(row: Row) -> str:
    entries, ledgers = int(row["entries"] or 0), int(row["ledgers"] or 0)
    made = f"{counted(entries, 'entry', 'entries')} of {counted(ledgers, 'ledger')} indexed"
    mine = ", now a store of ours" if row["whose"] != "ours" else ""
    wrong = counted(int(row["findings"] or 0), "finding") if row["findings"] else "no findings"
    unknown = "" if row["whole"] else ", what is not found may be missing"
    return f"{made}{mine}, {wrong}{unknown}"
