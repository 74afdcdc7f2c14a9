"""`ledgerstore stats`: show the figures of a store that its files contain.

directory                   the store
in_use                      whether another process has it open
ledgers, tombstones         existing ledgers; deleted ledgers that are remembered
entries                     of all ledgers
journaled_entries           those in the journals after the mark, which an opening would replay
journals, journal_bytes     files, and their sizes, with the space allocated in advance
entry_logs, entry_log_bytes
index_bytes
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.listing.store_view import open_store_view
from recovery.shell.output import KEY_VALUE_COLUMNS, Form, counted, key_value_rows, row_writer
from recovery.shell.places import current_directories, is_in_use
from storage.disk import filenames
from storage.disk.filenames import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.output import Row
    from recovery.view.view import View

_MEANINGS = {
    "ledgers": "existing ledgers",
    "tombstones": "deleted ledgers that the store still remembers",
    "entries": "of all ledgers",
    "journaled_entries": "of them in the journals after the mark; an opening would replay them",
    "journals": "files",
    "journal_bytes": "in the journals, with the space allocated in advance",
    "entry_logs": "files",
    "entry_log_bytes": "in the entry logs, with those of deleted ledgers",
    "index_bytes": "of the index",
}


@click.command()
@options.store
@options.output
@click.pass_context
def command(ctx: click.Context, store: str, form: Form) -> None:
    """Show the figures of a store: ledgers, entries, and the size of its files.

    STORE is a store, which another process may have open, or a bookie's directory. Rates, the size of the
    memtable, and the lag of checkpoints are known only to the process that has the store open: it gets them
    from `store.stats()`.

    \b
    Examples:
      ledgerstore stats /data/store
      ledgerstore stats /data/store --json | jq '.[0].entry_log_bytes'
    """
    path = Path(store)
    with open_store_view(store) as view:
        row = _row(path, view)
        out = row_writer(form, KEY_VALUE_COLUMNS)
        for line in key_value_rows(row, _MEANINGS, ()) if form is Form.TABLE else [row]:
            out.row(line)
        out.end()
        use = "in use by another process" if row["in_use"] else "not in use"
        say(f"stats: {counted(int(row['ledgers'] or 0), 'ledger')}, {use}")
        ctx.exit(Exit.FINDINGS if view.findings else Exit.CLEAN)


def _row(path: Path, view: View) -> Row:
    ledgers = view.ledgers()
    sizes = _sizes(path)
    journals, logs = sizes[FileKind.JOURNAL], sizes[FileKind.ENTRY_LOG]
    return {
        "directory": str(path),
        "in_use": is_in_use(path),
        "ledgers": len(ledgers),
        "tombstones": view.tombstones,
        "entries": sum(view.consistently(partial(view.count, ledger_id)) for ledger_id in ledgers),
        "journaled_entries": view.journaled_entries,
        "journals": len(journals),
        "journal_bytes": sum(journals),
        "entry_logs": len(logs),
        "entry_log_bytes": sum(logs),
        "index_bytes": sum(sizes[FileKind.INDEX]),
    }


def _sizes(path: Path) -> dict[FileKind, list[int]]:
    sizes: dict[FileKind, list[int]] = {
        kind: [] for kind in (FileKind.JOURNAL, FileKind.ENTRY_LOG, FileKind.INDEX)
    }
    for place in current_directories(path):
        for file in place.path.iterdir():
            kind = filenames.parse(file.name).kind
            if kind in sizes:
                sizes[kind] += _sizes_below(file)
    return sizes


def _sizes_below(path: Path) -> Iterator[int]:
    for file in path.iterdir() if path.is_dir() else (path,):
        if file.name == filenames.INDEX_LOCK:
            continue  # `Store.stats` does not count it either
        try:
            yield file.stat().st_size
        except FileNotFoundError:  # a running writer has removed it
            continue
