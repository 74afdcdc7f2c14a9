"""`ledgerstore du`: show what takes the space of a store.

what                        journals, entry logs, index, ledger metadata, quarantine, audit links, reserve,
                            others, total; or a part of the row before it
part_of                     the row whose bytes include these; null if there is none
files                       their number; null for a part of a file
bytes
detail                      what the bytes are for

With --ledgers, one row for each ledger with records in the entry logs:

ledger
state                       exists, or deleted if none of its entries is in the index
bytes                       of its records in all entry logs
live, dead                bytes of them that are in use, and those that a collection gives back
logs                        how many entry logs have records of it
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.directory.layout import Layout
from recovery.shell import options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.listing.store_view import open_store_view
from recovery.shell.output import Align, Column, counted, free_text, number_column, row_writer
from storage.disk.posix import PosixDirectory
from storage.gc.policy import percent
from storage.gc.usage import UsageSurvey
from storage.space_survey import measure
from storage.stats import FileStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from recovery.shell.output import Cell, Form, Row
    from recovery.view.view import View
    from storage.space import StoreSpace


@dataclass(slots=True)
class _LedgerBytes:
    recorded: int = 0
    live: int = 0
    logs: int = 0


@click.command()
@click.option(
    "--ledgers", "by_ledger", is_flag=True, help="One row for each ledger instead of each kind of file."
)
@options.store
@options.output
@click.pass_context
def command(ctx: click.Context, store: str, by_ledger: object, form: Form) -> None:
    """Show what takes the space of a store: journals, entry logs, index and all else.

    STORE is a store, which another process may have open, or a bookie's directory. The bytes in entry logs
    are live if their entries exist, and dead if they were deleted; `ledgerstore gc` shows which logs give
    them back. They come from the ledgers maps at the end of the logs. A log without a map, such as the one
    that is being written, is unknown.

    \b
    Examples:
      ledgerstore du /data/store
      ledgerstore du /data/store --ledgers --ndjson | jq 'select(.dead > 1000000)'
      ledgerstore du /data/store --json | jq '.[] | select(.what == "dead") | .bytes'
    """
    by_id: dict[int, _LedgerBytes] = {}

    def add(ledger_id: int, recorded: int, live: int) -> None:
        found = by_id.setdefault(ledger_id, _LedgerBytes())
        found.recorded, found.live, found.logs = (
            found.recorded + recorded,
            found.live + live,
            found.logs + 1,
        )

    with open_store_view(store) as view:
        space = _space(Path(store), view, add)
        out = row_writer(form, _LEDGER_COLUMNS if by_ledger else _COLUMNS)
        for row in _ledger_rows(by_id) if by_ledger else _rows(space):
            out.row(row)
        out.end()
        say(f"du: {_verdict(space)}")
        ctx.exit(Exit.FINDINGS if view.findings else Exit.CLEAN)


def _space(root: Path, view: View, watch: Callable[[int, int, int], None]) -> StoreSpace:
    directory = PosixDirectory(root)
    snapshot = view.snapshot
    state = snapshot.index.state()
    ledgers = Layout(directory).ledgers
    survey = UsageSurvey(
        ledgers,
        snapshot.index,
        snapshot.visible,
        snapshot.metadata,
        state.log_ends,
        state.last_log,
        watch=watch,
    )
    return measure(directory, snapshot.index, survey, view.tombstones)


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,}"


def _indented(row: Mapping[str, Cell], name: str) -> str:
    return f"{'  ' if row['part_of'] else ''}{row[name]}"


_COLUMNS = [
    Column("what", text=_indented),
    Column("files", Align.RIGHT, text=_grouped),
    Column("bytes", Align.RIGHT, text=_grouped),
    Column("detail", text=free_text),
]
_LEDGER_COLUMNS = [
    number_column("ledger"),
    Column("state"),
    *(Column(name, Align.RIGHT, text=_grouped) for name in ("bytes", "live", "dead")),
    number_column("logs"),
]


def _rows(space: StoreSpace) -> Iterator[Row]:
    logs, index = space.entry_logs, space.index
    yield _row("journals", space.journals, "with the space filled ahead")
    backups = space.journal_backups
    yield _row("backups", backups, "before the mark; no opening needs them", part_of="journals")
    yield _row("entry logs", FileStats(logs.count, logs.bytes), "")
    yield _part("live", logs.live, "entries that exist", "entry logs")
    yield _part("dead", logs.dead, "deleted entries; `ledgerstore gc` shows what comes back", "entry logs")
    yield _part("unknown", logs.unknown, "logs that have no ledgers map yet", "entry logs")
    yield _part("index", index.bytes, "")
    yield _part("used", index.used, "", "index")
    yield _part("free", index.free, "filled before the file grows", "index")
    words = counted(space.tombstones, "tombstone of a deleted ledger", "tombstones of deleted ledgers")
    yield _part("ledger metadata", space.metadata_log, words)
    yield _row("quarantine", space.quarantine, "put aside before a handover or a rebuild of the index")
    yield _row("audit links", space.audit_links, "removed files that an audit still reads")
    yield _part("reserve", space.reserve, "kept for deletes and checkpoints on a full disk")
    yield _row("others", space.others, "marks, cookies, drafts, and files that are not the store's")
    yield _part("total", space.total, "")


def _row(what: str, files: FileStats, detail: str, part_of: str | None = None) -> Row:
    row = _part(what, files.bytes, detail, part_of)
    return row | {"files": files.count}


def _part(what: str, size: int, detail: str, part_of: str | None = None) -> Row:
    return {"what": what, "part_of": part_of, "files": None, "bytes": size, "detail": detail or None}


def _ledger_rows(by_id: Mapping[int, _LedgerBytes]) -> Iterator[Row]:
    for ledger_id, found in sorted(by_id.items()):
        yield {
            "ledger": ledger_id,
            "state": "exists" if found.live else "deleted",
            "bytes": found.recorded,
            "live": found.live,
            "dead": found.recorded - found.live,
            "logs": found.logs,
        }


def _verdict(space: StoreSpace) -> str:
    logs = space.entry_logs
    known = logs.live + logs.dead
    live = f"{percent(logs.live / known)} of the entry logs are live" if known else "no entry log to judge"
    return f"{space.total:,} bytes, {live}"
