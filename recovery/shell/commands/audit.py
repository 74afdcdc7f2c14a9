"""`ledgerstore audit`: check every byte of many stores, on one machine or on Spark, and write a report.

The rows are findings, as `ledgerstore verify` lists them, with the column `store` if there are several
stores. The rows of --self-test:

fault                     the kind of fault
planted                   how many were planted, each in a fresh copy of the store
found                     after how many of them the audit reported any problem
located                   after how many of them it reported that fault at its exact place, and nothing else
missed                    after how many of them it did not
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from recovery.shell import audited_cluster, options
from recovery.shell.audit_engine import ENGINES, EngineOptions, started_engine
from recovery.shell.cluster_metadata import MetadataConnection, connection, is_address
from recovery.shell.exit_codes import (
    CannotDo,
    Exit,
    check_installed,
    failure_of,
    say,
    termination_as_interrupt,
)
from recovery.shell.output import Column, Form, RowTone, counted, number_column, row_writer
from recovery.shell.places import check_exists, given_paths, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.engines.task import TaskEngine
    from recovery.audit.history.finding_history import FindingHistory, Identity
    from recovery.audit.model.audit_report import AuditReport
    from recovery.audit.pipeline.ensemble_file import Replicas
    from recovery.audit.pipeline.request import CacheOptions
    from recovery.audit.self_test.trials import FaultScore, SelfTest
    from recovery.bookkeeper.directories import BookieDirectories, BookiePart
    from recovery.shell.output import Row
    from recovery.shell.passwords import Passwords


_SHOWN_MAX = 40
_MB = 1_000_000


class _AuditCommand(click.Command):
    """The command. Its first argument may be the name of another command, `history`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] != [_HISTORY]:
            return super().make_context(info_name, args, parent, **extra)
        from recovery.shell.commands import audit_history

        return audit_history.command.make_context(f"{info_name} {_HISTORY}", args[1:], parent, **extra)


_HISTORY = "history"


@click.command(cls=_AuditCommand)
@click.argument("stores", metavar="[STORE]...", nargs=-1)
@click.option("--engine", type=click.Choice(ENGINES), default="auto", help="Where to run.  [default: auto]")
@click.option("--out", metavar="DIR", help="Directory for the report.  [default: audit-TIME]")
@click.option("--since", metavar="REPORT", help="Skip entry logs that the audit in REPORT found sound.")
@click.option(
    "--reread", type=click.FloatRange(0, 100), metavar="%", help="Percentage of those logs to read again."
)
@click.option("--resume", is_flag=True, help="Continue the interrupted audit in --out.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MB/S",
    help="Maximum number of megabytes to read per second.",
)
@click.option(
    "--replicas",
    metavar="FILE|URI",
    help="Compare replicas as a JSON file with stores and ensembles says, or the metadata of a cluster.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of worker processes.  [default: CPUs]"
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark master, or sc://HOST:PORT of Spark Connect.  [default: local[*], or that of spark-submit]",
)
@click.option(
    "--baseline",
    metavar="FILE",
    help="Accepted findings, a line of JSON for each: they do not make the audit fail.",
)
@options.bookie_directories
@click.option("--self-test", is_flag=True, help="Damage copies of small stores and check what is found.")
@options.passwords
@click.option("--json", "is_json", is_flag=True, help="Print the summary as JSON.")
@connection
@click.pass_context
def command(
    ctx: click.Context,
    stores: tuple[str, ...],
    engine: str,
    out: str | None,
    since: str | None,
    reread: float | None,
    resume: object,
    rate: float | None,
    replicas: str | None,
    jobs: int | None,
    master: str | None,
    baseline: str | None,
    self_test: object,
    directories: BookieDirectories | None,
    passwords: Passwords,
    is_json: object,
    connection: MetadataConnection,
) -> None:
    """Check every byte of many stores, also on Spark, and write a report.

    Each STORE is a store, which another process may have open, or a bookie's directory. It may be a pattern
    such as '/data/bk*' or a file: URI. A bookie with several directories is named by --conf, or by
    --journal-dir and --ledger-dir. Each directory is checked as `verify` checks it, with hard links as
    `verify --help` describes them.

    The report in DIR is the page report.html, tables (findings.parquet, runs.parquet, parts.parquet,
    repairs.csv), and files for other programs: summary.json, metrics.prom for Prometheus, junit.xml for CI.
    history.ndjson says when each finding was first and last seen; it goes on with the next audit that has the
    same DIR, or that names this report with --since. `ledgerstore audit history DIR` shows it.

    The page begins with what has happened to data, and with what to do first. It draws every file to scale
    with its findings, the space that each ledger takes, and the live and dead bytes of each log. For each
    finding it names the command that shows the place.

    The engine is `local`, which runs processes on this machine, or `spark`. `auto` uses Spark for 20 GB or
    more, or if --master is given. Spark needs Java 17. Both engines report the same findings.

    A complete entry log never changes. With --since, such a log is read again only if its file differs from
    the one that the earlier audit saw. Bytes that rot after that audit are then not detected, so read
    everything from time to time.

    FILE states the stores, the write quorum and the ack quorum of each ledger. Entries with too few copies,
    entries on a wrong store, and copies that differ are findings, too. With the URI of a cluster's metadata,
    such as zk://localhost:2181/ledgers, these are the cluster's ledgers, also those that are open or in
    recovery. Each STORE then belongs to the bookie that its cookie names. --timeout and the options for TLS
    are for the connection to the metadata.

    Needs numpy, pyarrow and duckdb, for Spark pyspark, and for a bookie's index rocksdict: pip install
    'ledgerstore[audit]'.

    \b
    Examples:
      ledgerstore audit /data/bookie1 /data/bookie2 --out /var/audits/monday
      ledgerstore audit /data/store --since /var/audits/monday --rate 100
      ledgerstore audit --replicas ensembles.json --engine spark --master spark://host:7077
      ledgerstore audit /data/bookie-* --replicas zk://localhost:2181/ledgers
      ledgerstore audit --self-test
    """
    check_installed("audit", "audit", "pyarrow")
    engine_options = EngineOptions(engine, jobs, master, rate and rate * _MB)
    if self_test:
        ctx.exit(_run_self_test(stores, engine_options, passwords, Form.JSON if is_json else Form.TABLE))
    parts = {} if directories is None else {part.path: part for part in directories.parts()}
    stores = _chosen_stores(stores, parts, replicas)
    if resume and out is None:
        raise click.UsageError("--resume needs --out, the directory of the audit to continue")
    place = report_directory(out, (*stores, *parts))
    share = (reread or 0) / 100
    order = AuditOrder(
        stores, replicas, engine_options, passwords, place, since, share, resume, connection, parts, baseline
    )
    report = run_audit(order)
    _show_report(report, Form.JSON if is_json else Form.TABLE)
    from recovery.audit.report import figures

    say(f"report: {order.place / 'report.html'}")
    say(f"audit: {figures.verdict(report)}")
    ctx.exit(Exit.CLEAN if figures.is_clean(report) else Exit.FINDINGS)


def _chosen_stores(
    arguments: tuple[str, ...], parts: Mapping[str, BookiePart], replicas: str | None
) -> tuple[str, ...]:
    """Return the stores that the arguments name, or the one of the environment."""
    stores = given_paths(arguments)
    if parts and replicas is not None:
        raise click.UsageError("replicas of a bookie with several directories cannot be compared")
    if not stores and replicas is None and not parts:
        stores = options.store_from_environment()
        if not stores:
            raise click.UsageError("give a STORE, or --replicas FILE")
    if not stores and replicas is not None and is_address(replicas):
        raise click.UsageError("with the address of a cluster give each STORE: its cookie names the bookie")
    return stores


def _run_self_test(
    paths: tuple[str, ...], engine_options: EngineOptions, passwords: Passwords, form: Form
) -> Exit:

    if len(paths) > 1:
        raise click.UsageError("--self-test takes at most one STORE")
    path = paths[0] if paths else None
    if path is not None:
        check_exists(path)
    with started_engine(engine_options, 0) as (engine, _):
        return run_self_test(path, engine, passwords, form)


def _show_report(report: AuditReport, form: Form) -> None:
    from recovery.audit.report import figures
    from recovery.audit.report.summary import summary
    from recovery.shell.listing.finding import coloured_finding_row, finding_columns, password_misfit

    if form is Form.JSON:
        json.dump(summary(report), sys.stdout, ensure_ascii=False)
        click.echo()
        return
    wrong = [finding for finding in report.findings if finding.is_wrong]
    if wrong:
        out = row_writer(form, finding_columns(len(report.stores)))
        for finding in islice(wrong, _SHOWN_MAX):
            out.row(coloured_finding_row(finding))
        out.end()
    if len(wrong) > _SHOWN_MAX:
        say(f"and {len(wrong) - _SHOWN_MAX:,} more: the report has all of them")
    for store, what in figures.not_covered(report):
        say(f"not covered: {store}: {what}")
    for ledger_id in report.wrong_password_ledgers:
        say(password_misfit(ledger_id))


_PARTS = "parts"


class AuditOrder(NamedTuple):
    """The arguments of the command."""

    paths: tuple[str, ...]
    replicas: str | None
    engine_options: EngineOptions
    passwords: Passwords
    place: Path
    since: str | None
    reread: float
    is_resumed: object
    connection: MetadataConnection
    parts: Mapping[str, BookiePart]
    baseline: str | None


def report_directory(out: str | None, stores: tuple[str, ...]) -> Path:
    """Return the directory of the report.

    Check before the audit, which may take hours, that it can be made.
    """
    now = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    chosen = Path(out or f"audit-{now}")
    if "://" in (out or ""):
        raise CannotDo(f"the report is written into a local directory, and {out} is none")
    nearest = next(path for path in (chosen, *chosen.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise CannotDo(f"not a directory: {nearest}")
    for store in stores:
        if chosen.resolve().is_relative_to(Path(store).resolve()):
            raise CannotDo(f"the report would be written into the store {store}: choose another --out")
    return chosen


def run_audit(order: AuditOrder) -> AuditReport:
    """Run the audit and write its report."""
    from recovery.audit.history.baseline import accept
    from recovery.audit.report import writer
    from storage.errors import StoreError

    # One of several paths may be a disk that is not mounted, which the report says.
    if len(order.paths) == 1 and order.replicas is None and not order.parts:
        check_exists(order.paths[0])
    try:
        with termination_as_interrupt():
            accepted = _accepted(order.baseline)
            before = _history(order)
            # The tables of the report are in the engine.
            with _audited(order) as audited:
                report = accept(audited, accepted)
                writer.write(report, order.place, before)
    except StoreError as error:
        raise CannotDo(str(error)) from error
    except KeyboardInterrupt:
        say(f"audit: stopped before the end; continue with --resume --out {order.place}")
        raise
    return report


def _accepted(baseline: str | None) -> frozenset[Identity]:
    """Read the baseline, before the audit, which may take hours."""
    from recovery.audit.history import finding_history

    if baseline is None:
        return frozenset()
    try:
        return finding_history.decode_identities(Path(baseline).read_text(encoding="utf-8"))
    except OSError as error:
        raise failure_of(error) from error
    except ValueError as error:
        raise CannotDo(f"{baseline} is no baseline: {error}") from error


def _history(order: AuditOrder) -> FindingHistory:
    """Return the newer history of the report that is replaced and the one that is continued."""
    from recovery.audit.history.finding_history import NO_HISTORY

    places = [order.place, *([] if order.since is None else [Path(order.since)])]
    found = [read_history(place) for place in places if place.is_dir()]
    return max((one for one in found if one is not None), key=lambda one: one.updated, default=NO_HISTORY)


def read_history(report: Path) -> FindingHistory | None:
    """Return the history in the directory of a report, or `None` if there is none."""
    from recovery.audit.history import finding_history

    path = report / finding_history.FILE
    try:
        return finding_history.decode(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure_of(error) from error
    except ValueError as error:
        raise CannotDo(f"{path} is no history of findings: {error}") from error


@contextmanager
def _audited(order: AuditOrder) -> Iterator[AuditReport]:
    """Yield the results of the audit. The engine ends with the `with`."""
    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.pipeline import ensemble_file
    from recovery.audit.pipeline.password_check import run_audit_with_valid_passwords
    from recovery.audit.pipeline.request import AuditRequest
    from recovery.shell.output import AuditProgressBar

    replicas, passwords = None, order.passwords.by_ledger
    uri = order.replicas if order.replicas is not None and is_address(order.replicas) else None
    if uri is not None:
        replicas, known = audited_cluster.read_cluster(order.connection, uri, order.paths)
        passwords = {**known, **passwords}
    elif order.replicas is not None:
        replicas = ensemble_file.load(order.replicas)
    policy = DigestPolicy(passwords=passwords, password=order.passwords.otherwise)
    cache_options = _cache_options(order)
    paths = (*order.paths, *order.parts)
    size = size_of(_all_paths(paths, replicas))
    argv = ("ledgerstore", *sys.argv[1:])
    with started_engine(order.engine_options, size) as (engine, jobs):
        with AuditProgressBar() as watch:
            report = run_audit_with_valid_passwords(
                AuditRequest(paths, policy, engine, jobs, replicas, watch, cache_options, argv, order.parts)
            )
        if uri is not None and replicas is not None:
            report = audited_cluster.without_changed_ledgers(order.connection, uri, replicas, report)
        yield report


def _cache_options(order: AuditOrder) -> CacheOptions:
    from recovery.audit.pipeline.request import CacheOptions

    since = None if order.since is None else Path(order.since)
    if since is not None and not (since / _PARTS).is_dir():
        raise CannotDo(
            f"{since} is not the report of an audit that can be continued: it has no {_PARTS} directory"
        )
    if order.is_resumed and not (order.place / _PARTS).is_dir():
        say(f"{order.place} holds nothing to resume: everything is read")
    return CacheOptions(order.place, since, order.reread, bool(order.is_resumed))


def _all_paths(paths: tuple[str, ...], replicas: Replicas | None) -> set[str]:
    return {*paths, *(replicas.stores.values() if replicas else ())}


_COLUMNS = [
    Column("fault"),
    number_column("planted"),
    number_column("found", rank=1),
    number_column("located"),
    number_column("missed"),
]
_MISSES_MAX = 5


def run_self_test(path: str | None, engine: TaskEngine, passwords: Passwords, form: Form) -> Exit:
    """Plant faults in copies of the store at the path, or of small stores made here, and audit each copy."""
    from recovery.audit.self_test.trials import Trials, self_test
    from recovery.shell.output import StageProgressBar

    stage = StageProgressBar("planting")

    def show(done: int, total: int) -> None:
        if stage.is_due:
            stage.show(done / total, f"{done} of {total} faults")

    trials = Trials(engine=engine, passwords=passwords.by_ledger, password=passwords.otherwise, watch=show)
    try:
        tested = self_test(None if path is None else Path(path), trials)
    finally:
        stage.end()
    _show_scores(tested, form)
    return Exit.CLEAN if tested.is_passed else Exit.FINDINGS


def _show_scores(tested: SelfTest, form: Form) -> None:
    out = row_writer(form, _COLUMNS)
    for score in tested.scores:
        tone: Row = {"tone": RowTone.BAD.value if score.missed else RowTone.GOOD.value}
        out.row(_row(score) | (tone if form is Form.TABLE else {}))
    out.end()
    for miss in tested.misses[:_MISSES_MAX]:
        say(f"missed: {miss}")
    for alarm in tested.false_alarms[:_MISSES_MAX]:
        say(f"false alarm: {alarm.kind} {alarm.place} {alarm.detail}")
    say(f"planted in {tested.what}")
    if tested.kills:
        say(f"also audited: {counted(tested.kills, 'store')} in the state that a kill leaves")
    say(f"self-test: {_verdict(tested)}")


def _row(score: FaultScore) -> Row:
    return {
        "fault": score.name,
        "planted": score.planted,
        "found": score.found,
        "located": score.located,
        "missed": score.missed,
    }


def _verdict(tested: SelfTest) -> str:
    located = f"{tested.located} of {counted(tested.planted, 'fault')} found at their exact place"
    alarms = counted(len(tested.false_alarms), "false alarm") if tested.false_alarms else "no false alarm"
    return f"{located}, {alarms}"
