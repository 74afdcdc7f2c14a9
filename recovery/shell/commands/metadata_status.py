"""`ledgerstore metadata status`: show what the directory of a metadata server holds.

directory         the store
in_use            whether a server has it open
zxid              of the last change
nodes             with ZooKeeper's own four
ephemerals        of them, those that go with a session
data_bytes        of all paths and data
sessions          open, or not expired yet
snapshot          how many snapshots were begun
changes           since the last whole snapshot, which the next start applies again
change_bytes
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import Exit, StoreRefused, say
from recovery.shell.listing.store_view import open_store_view
from recovery.shell.output import KEY_VALUE_COLUMNS, Form, counted, key_value_rows, row_writer
from recovery.shell.places import is_in_use

if TYPE_CHECKING:
    from recovery.shell.output import Row
    from recovery.view.view import View

_MEANINGS = {
    "zxid": "of the last change",
    "nodes": "with ZooKeeper's own four",
    "ephemerals": "of them go with a session",
    "data_bytes": "of all paths and data",
    "sessions": "open, or not expired yet",
    "snapshot": "snapshots that were begun",
    "changes": "since the last whole snapshot; the next start applies them again",
    "change_bytes": "of these changes",
}


@click.command()
@options.store
@options.output
@click.pass_context
def command(ctx: click.Context, store: str, form: Form) -> None:
    """Show what the directory of a metadata server holds: nodes, sessions, changes since its snapshot.

    It only reads the files, also while the server runs.

    \b
    Examples:
      ledgerstore metadata status /data/metadata
      ledgerstore metadata status /data/metadata --json | jq '.[0].sessions'
    """
    with open_store_view(store) as view:
        row = _row(Path(store), view)
        out = row_writer(form, KEY_VALUE_COLUMNS)
        for line in key_value_rows(row, _MEANINGS, ()) if form is Form.TABLE else [row]:
            out.row(line)
        out.end()
        use = "served by another process" if row["in_use"] else "not served"
        say(f"status: {counted(int(row['nodes'] or 0), 'node')}, {use}")
        ctx.exit(Exit.FINDINGS if view.findings else Exit.CLEAN)


def _row(path: Path, view: View) -> Row:
    from storage.cluster.zookeeper.log import DamagedLog, load

    try:
        # Again if the server has deleted an old snapshot meanwhile.
        loaded = view.consistently(lambda: load(view))
    except DamagedLog as error:
        raise StoreRefused(f"{path}: {error}") from error
    tree = loaded.tree
    return {
        "directory": str(path),
        "in_use": is_in_use(path),
        "zxid": tree.zxid,
        "nodes": len(tree.nodes),
        "ephemerals": tree.ephemeral_count,
        "data_bytes": tree.data_size,
        "sessions": len(tree.sessions),
        "snapshot": loaded.generation,
        "changes": loaded.changes,
        "change_bytes": loaded.size,
    }
