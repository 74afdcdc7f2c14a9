"""`ledgerstore verify`: every byte of a store, or of one file, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.audit_needs import check_is_there, check_there_is, jobs_for, size_of
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.audit.asked import Progress
    from recovery.audit.inspected import AuditReport
    from recovery.shell.passwords import Passwords

_SEVERITIES = ("error", "warning", "information")


@click.command()
@click.argument("path", metavar="[PATH]", default=".")
@click.option(
    "--severity",
    type=click.Choice(_SEVERITIES),
    default="information",
    help="Show what is at least so grave.  [default: information]",
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="So many processes.  [default: CPUs]")
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context, path: str, severity: str, jobs: int | None, passwords: Passwords, form: Form
) -> None:
    """Read a store whole, and say what is wrong with it.

    PATH is a store, perhaps open in another process, or a bookie's directory; or one file: a journal, an
    entry log, a lastMark, a ledgers.rows or a VERSION. Nothing is written. Every digest is verified, and
    journals, marks, entry logs, their ledgers maps and the index are held against each other.

    COUNT is that of entries, rows or bytes, as the kind of finding counts; `ledgerstore explain KIND` says
    what it means and what to do. Information is no finding: a torn tail that a crash has left, a gap. Entries
    without a digest, and those of a MAC without its password, are unverified, and the last line says so.

    \b
    Examples:
      ledgerstore verify /data/store
      ledgerstore verify /data/bookie --password-file secrets --severity warning
      ledgerstore verify /data/bookie/ledgers/current/1f.log --json | jq '.[].look'
    """
    check_there_is("verify", "fast", "numpy")
    check_is_there(path)
    report = _report(path, passwords, jobs)
    _show(report, _SEVERITIES.index(severity), form)
    from recovery.audit.report import figures

    say(f"verify: {figures.verdict(report)}")
    ctx.exit(Exit.CLEAN if figures.is_clean(report) else Exit.FINDINGS)


def _report(path: str, passwords: Passwords, jobs: int | None) -> AuditReport:
    from recovery.shell.audit_watch import AuditWatch
    from storage.errors import StoreError

    inspected = _store if Path(path).is_dir() else _file
    try:
        with AuditWatch() as watch:
            return inspected(path, passwords, jobs, watch)
    except StoreError as error:
        raise CannotDo(str(error)) from error


def _store(
    path: str, passwords: Passwords, jobs: int | None, watch: Callable[[Progress], None]
) -> AuditReport:
    from recovery.audit.asked import Asked
    from recovery.audit.fitting import inspect_with_what_fits
    from recovery.audit.local import Pool
    from recovery.audit.ways import Ways

    count = jobs_for(size_of([path]), jobs)
    ways = Ways(passwords=passwords.by_ledger, password=passwords.otherwise)
    return inspect_with_what_fits(Asked((path,), ways, Pool(count), count, watch=watch))


def _file(path: str, passwords: Passwords, _: int | None, watch: Callable[[Progress], None]) -> AuditReport:
    from recovery.audit.one_file import inspect_file
    from recovery.audit.ways import Ways

    ways = Ways(passwords=passwords.by_ledger, password=passwords.otherwise)
    return inspect_file(Path(path), ways, watch)


def _show(report: AuditReport, gravest: int, form: Form) -> None:
    from recovery.shell import finding_rows

    out = writer(form, finding_rows.columns(len(report.stores)))
    describe = finding_rows.coloured if form is Form.TABLE else finding_rows.row
    for finding in report.findings:
        if finding.severity <= gravest:
            out.row(describe(finding))
    out.end()
    for store in report.stores:
        for what in store.coverage.not_covered:
            say(f"not covered: {what}")
    for ledger_id in report.misfits:
        say(finding_rows.misfit(ledger_id))
