"""`ledgerstore audit`: many stores whole, on one machine or on Spark, and a report of it.

store                     where several are audited; the rest as `ledgerstore verify` lists findings
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.audit_engines import ENGINES, Wanted, started
from recovery.shell.audit_needs import check_is_there, check_there_is
from recovery.shell.audit_work import Order, done, place
from recovery.shell.exits import Exit, say
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from recovery.audit.inspected import AuditReport
    from recovery.shell.passwords import Passwords

_SHOWN_MAX = 40
_MB = 1_000_000


@click.command()
@click.argument("paths", metavar="PATH…", nargs=-1)
@click.option(
    "--engine", type=click.Choice(ENGINES), default="auto", help="On what it runs.  [default: auto]"
)
@click.option("--out", metavar="DIR", help="Where the report goes.  [default: audit-TIME]")
@click.option("--since", metavar="REPORT", help="Do not read again what that report's audit found sound.")
@click.option("--reread", type=click.FloatRange(0, 100), metavar="%", help="Of that, read so much again.")
@click.option("--resume", is_flag=True, help="Go on with an audit that was interrupted, in --out.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="MB/S", help="Read no faster.")
@click.option("--replicas", metavar="FILE", help="Who should hold which entries, in JSON; its stores too.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="So many at once.  [default: CPUs]")
@click.option("--master", metavar="URL", help="Spark's master.  [default: local[*], or spark-submit's]")
@click.option("--self-test", is_flag=True, help="Damage copies of small stores, and see that it is found.")
@options.passwords
@click.option("--json", "is_json", is_flag=True, help="Print the summary as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    engine: str,
    out: str | None,
    since: str | None,
    reread: float | None,
    resume: object,
    rate: float | None,
    replicas: str | None,
    jobs: int | None,
    master: str | None,
    self_test: object,
    passwords: Passwords,
    is_json: object,
) -> None:
    """Read many stores whole, on Spark too, and write a report.

    Each PATH is a store, perhaps open in another process, or a bookie's directory, and is judged as `verify`
    judges it. In DIR then are findings.parquet, runs.parquet, parts.parquet, summary.json, and report.html,
    which is for people: every file to scale with what is wrong in it, space by ledger, live and dead bytes of
    each log, and for each finding the command that shows it.

    The engine is local, processes of this machine, or spark; auto takes Spark from 20 GB on, and where
    --master is given. Spark needs Java 17; local needs none. Both find the same.

    Entry logs that nobody writes to any more do not change: with --since they are read again only where they
    are not as that audit found them. What then rots is not seen: read everything from time to time.

    FILE tells for each ledger its stores, write and ack quorum: entries with too few copies, on the wrong
    store, or with copies that differ, are found too.

    \b
    Examples:
      ledgerstore audit /data/bookie1 /data/bookie2 --out /var/audits/monday
      ledgerstore audit /data/store --since /var/audits/monday --rate 100
      ledgerstore audit --replicas ensembles.json --engine spark --master spark://host:7077
      ledgerstore audit --self-test
    """
    check_there_is("audit", "audit", "numpy", "pyarrow")
    wanted = Wanted(engine, jobs, master, rate and rate * _MB)
    if self_test:
        ctx.exit(_self_test(paths, wanted, passwords, Form.JSON if is_json else Form.TABLE))
    if not paths and replicas is None:
        raise click.UsageError("name a store, or --replicas FILE")
    if resume and out is None:
        raise click.UsageError("--resume goes on with what is in --out: name it")
    order = Order(paths, replicas, wanted, passwords, place(out), since, (reread or 0) / 100, resume)
    report = done(order)
    _show(report, Form.JSON if is_json else Form.TABLE)
    from recovery.audit.report import figures

    say(f"report: {order.place / 'report.html'}")
    say(f"audit: {figures.verdict(report)}")
    ctx.exit(Exit.CLEAN if figures.is_clean(report) else Exit.FINDINGS)


def _self_test(paths: tuple[str, ...], wanted: Wanted, passwords: Passwords, form: Form) -> Exit:
    from recovery.shell.audit_self_test import run_self_test

    if len(paths) > 1:
        raise click.UsageError("--self-test damages copies of one store, or of small ones of its own")
    path = paths[0] if paths else None
    if path is not None:
        check_is_there(path)
    with started(wanted, 0) as (engine, _):
        return run_self_test(path, engine, passwords, form)


def _show(report: AuditReport, form: Form) -> None:
    from recovery.audit.report import figures
    from recovery.audit.report.summary import summary
    from recovery.shell import finding_rows

    if form is Form.JSON:
        json.dump(summary(report), sys.stdout, ensure_ascii=False)
        click.echo()
        return
    wrong = [finding for finding in report.findings if finding.is_wrong]
    if wrong:
        out = writer(form, finding_rows.columns(len(report.stores)))
        for finding in islice(wrong, _SHOWN_MAX):
            out.row(finding_rows.coloured(finding))
        out.end()
    if len(wrong) > _SHOWN_MAX:
        say(f"and {len(wrong) - _SHOWN_MAX:,} more, all of them in the report")
    for store, what in figures.not_covered(report):
        say(f"not covered: {store}: {what}")
    for ledger_id in report.misfits:
        say(finding_rows.misfit(ledger_id))
