"""`ledgerstore audit history`: show when findings were first and last seen, and which are resolved.

severity, kind, title     as in a listing of findings
store, file, offset       where it is
ledger, first_entry, last_entry
count, detail
first_seen, last_seen     when audits ended that saw it
resolved                  when an audit did not find it any more; null as long as it is open
audits                    how many audits have seen it
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, check_installed, say
from recovery.shell.output import Column, Form, RowTone, counted, number_column, row_writer

if TYPE_CHECKING:
    from recovery.audit.history.finding_history import FindingRecord
    from recovery.shell.output import Row

_COLUMNS = [
    Column("state"),
    Column("severity", rank=3),
    Column("kind"),
    Column("store", rank=4),
    Column("file"),
    number_column("offset", rank=5),
    number_column("ledger", rank=2),
    number_column("first_entry", rank=6),
    number_column("last_entry", rank=6),
    Column("first_seen"),
    Column("last_seen", rank=1),
    Column("detail"),
]


@click.command()
@click.argument("report", metavar="REPORT")
@click.option("--all", "with_resolved", is_flag=True, help="Show resolved findings, too.")
@options.output
@click.pass_context
def command(ctx: click.Context, report: str, with_resolved: object, form: Form) -> None:
    """Show when findings were first and last seen.

    REPORT is the directory of an audit's report. Its history goes on with each audit that has the same
    --out, or that names the report with --since. A finding is resolved when an audit reads its store and
    does not find it any more.

    The rows of --ndjson are lines of a baseline: an audit with --baseline accepts these findings. They
    stay in the report, and no longer make the audit fail.

    \b
    Examples:
      ledgerstore audit history /var/audits/store
      ledgerstore audit history /var/audits/store --ndjson | grep LGR-004 > accepted
      ledgerstore audit /data/store --out /var/audits/store --baseline accepted
    """
    check_installed("audit history", "audit", "numpy", "pyarrow")
    from recovery.shell.commands.audit import read_history

    history = read_history(Path(report))
    if history is None:
        raise CannotDo(f"{report} is not the report of an audit: it has no history of findings")
    out = row_writer(form, _COLUMNS)
    for record in history.records if with_resolved else history.open:
        out.row(_row(record, form))
    out.end()
    words = f"{len(history.new)} new and {len(history.just_resolved)} resolved"
    wrong = [one for one in history.open if one.severity != "information"]
    say(f"history: {counted(len(history.open), 'open finding')}, {words} by the audit of {history.updated}")
    ctx.exit(Exit.FINDINGS if wrong else Exit.CLEAN)


def _row(record: FindingRecord, form: Form) -> Row:
    row: Row = {**asdict(record), "file": record.file or None}
    if form is not Form.TABLE:
        return row
    state = "open" if record.resolved is None else "resolved"
    tone = RowTone.PLAIN if record.resolved else RowTone.BAD
    return row | {"state": state, "tone": tone.value}
