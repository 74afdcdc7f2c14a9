"""`ledgerstore files`: what a directory holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import file_rows, options
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.tally import counted
from recovery.shell.writers import writer

if TYPE_CHECKING:
    from recovery.shell.writers import Form


@click.command()
@click.argument("path", metavar="[PATH]", default=".")
@options.output
@click.pass_context
def command(ctx: click.Context, path: str, form: Form) -> None:
    """What a directory holds: journals, entry logs, marks.

    PATH is a store, a bookie's directory, or one of their `current` directories. Whatever neither we nor a
    bookie would have written is listed as unknown.

    \b
    Examples:
      ledgerstore files /data/bookie
      ledgerstore files --ndjson | jq 'select(.kind == "entry log" and .sealed == false)'
    """
    root = Path(path)
    if not root.is_dir():
        raise CannotDo(f"{'not a directory' if root.exists() else 'no such directory'}: {path}")
    out = writer(form, file_rows.COLUMNS)
    kinds: Counter[str] = Counter()
    size = flawed = 0
    for row in file_rows.rows(root):
        out.row(row)
        kinds[str(row["kind"])] += 1
        size += int(row["bytes"] or 0)
        flawed += row["flaw"] is not None
    out.end()
    some = [counted(kinds[kind], kind) for kind in ("journal", "entry log") if kinds[kind]]
    some += [f"{kinds['unknown']} unknown"] if kinds["unknown"] else []
    wrong = [f"{flawed} damaged"] if flawed else []
    say("files: " + ", ".join([counted(kinds.total(), "file"), counted(size, "byte"), *some, *wrong]))
    ctx.exit(Exit.FINDINGS if flawed else Exit.CLEAN)
