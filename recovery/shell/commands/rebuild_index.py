"""`ledgerstore rebuild-index`: rebuild the index from entry logs, journals and ledger rows.

directory                   the store
whose                       which program wrote there last: "ours" or "a bookie's"
logs, bytes                 entry logs that were read, and their size
entries, ledgers            in the new index
unreadable                  entries without a sound copy
holes                       damaged byte ranges in entry logs
whole                       false if the new index may lack entries
fenced                      ledgers that accept no ordinary adds
unproven                    ledgers of a bookie whose key is in no journal; they can only be read
findings                    number of findings; each is printed on stderr
old_index                   where the old index is kept; null if there was none
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.output import KEY_VALUE_COLUMNS, Form, counted, key_value_rows, row_writer

if TYPE_CHECKING:
    from recovery.opening.rebuild_index import RebuiltDirectory
    from recovery.shell.output import Row
    from storage.open_report import RebuildProgress

_MEANINGS = {
    "logs": "entry logs",
    "bytes": "in the entry logs",
    "entries": "in the new index",
    "ledgers": "with entries in the new index",
    "unreadable": "entries without a sound copy",
    "holes": "damaged byte ranges in entry logs",
    "fenced": "ledgers that accept no ordinary adds",
    "unproven": "ledgers whose key is in no journal; they can only be read",
}
_BAD_UNLESS_ZERO = ("unreadable", "holes")


@click.command()
@options.store_to_change
@options.output
@click.pass_context
def command(ctx: click.Context, store: str, form: Form) -> None:
    """Rebuild the index from the entry logs and the journals.

    STORE is a store or a bookie's directory: the one with journal/ and ledgers/ in it. No process may have it
    open. The old index is kept under another name; entry logs and journals are not changed.

    A store rebuilds a lost index when it is opened; this command does it without opening the store. A
    bookie's directory becomes a store: keys, fences and explicit LACs are taken from the journals that exist,
    digest types from the entries. A ledger whose key is in no journal can be read but not appended to. The
    journals after the last checkpoint are replayed when the store is opened.

    \b
    Examples:
      ledgerstore rebuild-index /data/bookie
      ledgerstore rebuild-index /data/bookie --json | jq '.[0].unproven'
    """
    from storage.errors import StoreError

    try:
        row, findings = _rebuild(Path(store))
    except StoreError as error:
        raise CannotDo(str(error)) from error
    out = row_writer(form, KEY_VALUE_COLUMNS)
    for line in key_value_rows(row, _MEANINGS, _BAD_UNLESS_ZERO) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    for finding in findings:
        say(f"finding: {finding}")
    if row["old_index"] is not None:
        say(f"the old index is kept as {row['old_index']}")
    say(f"rebuild-index: {_verdict(row)}")
    ctx.exit(Exit.FINDINGS if findings else Exit.CLEAN)


def _rebuild(path: Path) -> tuple[Row, tuple[str, ...]]:
    from recovery.directory.layout import Layout
    from recovery.opening.rebuild_index import check_can_be_rebuilt, rebuild_index
    from recovery.shell.output import StageProgressBar
    from storage.disk import filenames
    from storage.disk.posix import PosixDirectory
    from storage.index.lmdb.directory import LmdbIndexDirectory

    if not path.is_dir():
        raise CannotDo(f"{'not a directory' if path.exists() else 'no such directory'}: {path}")
    layout = Layout(PosixDirectory(path))
    check_can_be_rebuilt(layout)
    stage = StageProgressBar("reading")

    def show(progress: RebuildProgress) -> None:
        if stage.is_due:
            stage.show(progress.fraction, f"{progress.entries:,} entries")

    with layout.root.lock(filenames.LOCK):
        had_an_index = filenames.INDEX in layout.ledgers.names()
        try:
            rebuilt = rebuild_index(layout, LmdbIndexDirectory(layout.ledgers, layout.ledgers.path), show)
        finally:
            stage.end()
        kept = Path(layout.ledgers.path) / filenames.damaged(filenames.INDEX)
        row = _row(path, rebuilt, str(kept) if had_an_index else None)
        rebuilt.index.close()
    return row, rebuilt.findings


def _row(path: Path, rebuilt: RebuiltDirectory, old_index: str | None) -> Row:
    counts = [rebuilt.index.count(ledger_id) for ledger_id in rebuilt.index.ledgers()]
    return {
        "directory": str(path),
        "whose": "a bookie's" if rebuilt.was_imported else "ours",
        "logs": rebuilt.figures.logs,
        "bytes": rebuilt.figures.bytes,
        "entries": sum(counts),
        "ledgers": len(counts),
        "unreadable": rebuilt.figures.unreadable,
        "holes": rebuilt.figures.holes,
        "whole": rebuilt.index.state().is_whole,
        "fenced": sum(row.fenced for row in rebuilt.rows.values()),
        "unproven": sum(row.master_key is None for row in rebuilt.rows.values()),
        "findings": len(rebuilt.findings),
        "old_index": old_index,
    }


def _verdict(row: Row) -> str:
    entries, ledgers = int(row["entries"] or 0), int(row["ledgers"] or 0)
    made = f"{counted(entries, 'entry', 'entries')} of {counted(ledgers, 'ledger')} indexed"
    mine = ", now a store of ledgerstore" if row["whose"] != "ours" else ""
    wrong = counted(int(row["findings"] or 0), "finding") if row["findings"] else "no findings"
    unknown = "" if row["whole"] else ", the index may lack entries"
    return f"{made}{mine}, {wrong}{unknown}"
