"""`ledgerstore verify`: check every byte of a store or of one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.options import worker_count
from recovery.shell.output import Form, row_writer
from recovery.shell.places import check_exists, given_paths, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.audit.engines.progress import AuditProgress
    from recovery.audit.model.audit_report import AuditReport
    from recovery.bookkeeper.directories import BookieDirectories, BookiePart
    from recovery.shell.passwords import Passwords

_SEVERITIES = ("error", "warning", "information")


@click.command()
@click.argument("store", metavar="[STORE|FILE]", default=".", envvar=options.STORE_VARIABLE)
@click.option(
    "--severity",
    type=click.Choice(_SEVERITIES),
    default="information",
    help="Minimum severity to show.  [default: information]",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of worker processes.  [default: CPUs]"
)
@options.bookie_directories
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    store: str,
    severity: str,
    jobs: int | None,
    directories: BookieDirectories | None,
    passwords: Passwords,
    form: Form,
) -> None:
    """Check every byte of a store or of a file, and list what is wrong.

    STORE is a store, which another process may have open, or a bookie's directory. FILE is a journal, an
    entry log, a lastMark, a ledgers.rows or a VERSION. Every digest is checked, and journals, marks, entry
    logs, their ledgers maps and the index are compared with each other.

    No file of the store is changed. If another process has it open, hard links to its files are made in
    STORE/audit.links and removed at the end. Links that a killed run has left are removed by the next run.
    The index is copied to the directory for temporary files (TMPDIR).

    COUNT is a number of entries, rows or bytes, depending on the kind of finding; `ledgerstore explain KIND`
    says what the kind means and what to do. Rows of severity information, such as a torn tail after a crash
    or a gap, report nothing wrong. Entries without a digest, and MACs without a password, cannot be checked;
    the last line counts them.

    A bookie with several journal or ledger directories is named by its configuration file, or by all of
    them in its order. Then each directory is checked like a store. A bookie's index in RocksDB is read if
    rocksdict is installed.

    \b
    Examples:
      ledgerstore verify /data/store
      ledgerstore verify /data/bookie --password-file secrets --severity warning
      ledgerstore verify --conf /etc/bookkeeper/bk_server.conf
      ledgerstore verify /data/bookie/ledgers/current/1f.log --json | jq '.[].look'
    """
    if directories is not None:
        if ctx.get_parameter_source("store") is ParameterSource.COMMANDLINE:
            raise click.UsageError("give a STORE, or the directories of a bookie")
        report = _report_of_parts(directories, passwords, jobs)
    else:
        (path,) = _one(given_paths([store]))
        report = _report(path, passwords, jobs)
    _show(report, _SEVERITIES.index(severity), form)
    from recovery.audit.report import figures

    say(f"verify: {figures.verdict(report)}")
    ctx.exit(Exit.CLEAN if figures.is_clean(report) else Exit.FINDINGS)


def _one(paths: tuple[str, ...]) -> tuple[str]:
    if len(paths) > 1:
        raise CannotDo(f"{len(paths)} paths match: `ledgerstore audit` takes several")
    check_exists(paths[0])
    return (paths[0],)


def _report_of_parts(directories: BookieDirectories, passwords: Passwords, jobs: int | None) -> AuditReport:
    from recovery.shell.output import AuditProgressBar
    from storage.errors import StoreError

    parts = {part.path: part for part in directories.parts()}
    try:
        with AuditProgressBar() as watch:
            return _check_stores(tuple(parts), passwords, jobs, watch, parts)
    except StoreError as error:
        raise CannotDo(str(error)) from error


def _report(path: str, passwords: Passwords, jobs: int | None) -> AuditReport:
    from recovery.shell.output import AuditProgressBar
    from storage.errors import StoreError

    check = _check_store if Path(path).is_dir() else _check_file
    try:
        with AuditProgressBar() as watch:
            return check(path, passwords, jobs, watch)
    except StoreError as error:
        raise CannotDo(str(error)) from error


def _check_store(
    path: str, passwords: Passwords, jobs: int | None, watch: Callable[[AuditProgress], None]
) -> AuditReport:
    return _check_stores((path,), passwords, jobs, watch, {})


def _check_stores(
    paths: tuple[str, ...],
    passwords: Passwords,
    jobs: int | None,
    watch: Callable[[AuditProgress], None],
    parts: Mapping[str, BookiePart],
) -> AuditReport:
    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.local import Pool
    from recovery.audit.pipeline.password_check import run_audit_with_valid_passwords
    from recovery.audit.pipeline.request import AuditRequest

    count = worker_count(size_of(paths), jobs)
    policy = DigestPolicy(passwords=passwords.by_ledger, password=passwords.otherwise)
    request = AuditRequest(paths, policy, Pool(count), count, watch=watch, parts=parts)
    return run_audit_with_valid_passwords(request)


def _check_file(
    path: str, passwords: Passwords, _: int | None, watch: Callable[[AuditProgress], None]
) -> AuditReport:
    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.pipeline.single_file import audit_file

    policy = DigestPolicy(passwords=passwords.by_ledger, password=passwords.otherwise)
    return audit_file(Path(path), policy, watch)


def _show(report: AuditReport, severity_max: int, form: Form) -> None:
    from recovery.shell.listing.finding import (
        coloured_finding_row,
        finding_columns,
        finding_row,
        password_misfit,
    )

    out = row_writer(form, finding_columns(len(report.stores)))
    describe = coloured_finding_row if form is Form.TABLE else finding_row
    for finding in report.findings:
        if finding.severity <= severity_max:
            out.row(describe(finding))
    out.end()
    for store in report.stores:
        for what in store.coverage.not_covered:
            say(f"not covered: {what}")
    for ledger_id in report.wrong_password_ledgers:
        say(password_misfit(ledger_id))
