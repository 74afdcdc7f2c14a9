"""`ledgerstore gc`: show why each entry log is still there, and give space back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, StoreRefused, say
from recovery.shell.listing.collection import LOG_COLUMNS, coloured, log_row
from recovery.shell.listing.store_view import open_store_view
from recovery.shell.output import Form, StageProgressBar, counted, row_writer
from recovery.shell.places import is_in_use
from recovery.view.log_facts import Exactness, LogFactsOfView, Use
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.gc.policy import ReasonKind, Scope, Situation, decide
from storage.gc.report import CollectionEnd
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.view.view import View
    from storage.gc.policy import LogVerdict, PolicyFacts, Problem
    from storage.gc.report import CollectionProgress, CollectionReport


@click.command()
@click.option(
    "--exact", "is_exact", is_flag=True, help="Read every record and ask the index which of them are live."
)
@click.option("--run", "is_run", is_flag=True, help="Collect. No process may have the store open.")
@click.option(
    "--conf",
    metavar="FILE",
    help="Take thresholds and sizes from a bookie's configuration.  [default: those of a store]",
)
@options.store
@options.output
@click.pass_context
def command(
    ctx: click.Context, store: str, is_exact: object, is_run: object, conf: str | None, form: Form
) -> None:
    """Show why each entry log is still there, and what would come back. With --run, give it back.

    STORE is a store, which another process may have open, or a bookie's directory. Nothing is changed without
    --run. The live bytes come from the ledgers maps at the end of the logs and from the index, which is
    quick. They are too many where entries were added again, and damage inside of a log is not seen; --exact
    reads every record.

    A log without live entries is removed by the next collection. From a log whose share of live bytes is
    below the threshold, 70 %, the live entries are moved to another log first. A store collects by itself
    15 minutes after a delete; `Store.collect` does it at once.

    --run opens the store, which recovers it, collects, and closes it. A damaged log is passed over and listed
    with its finding; the others are done. After Ctrl-C, what was done is done, and --run goes on with the
    rest.

    \b
    Examples:
      ledgerstore gc /data/store
      ledgerstore gc --exact /data/store --ndjson | jq 'select(.kept == "unaccounted")'
      ledgerstore gc --run /data/store
    """
    from storage.errors import StoreError

    try:
        config = StoreConfig() if conf is None else StoreConfig.from_bookkeeper_conf(conf)
    except StoreError as error:
        raise CannotDo(str(error)) from error
    if is_run and is_exact:
        raise click.UsageError("--run and --exact cannot be used together: a collection proves every removal")
    if is_run:
        code = _run(store, config, form)
    else:
        code = _explain(store, Exactness.BY_INDEX if is_exact else Exactness.BY_MAPS, config, form)
    ctx.exit(code)


def _explain(store: str, exactness: Exactness, config: StoreConfig, form: Form) -> Exit:
    with open_store_view(store) as view:
        verdicts = _print_logs(view, exactness, config, form)
        wrong = _problems(verdicts)
        say(f"gc: {_summary(verdicts)}{wrong}")
        return Exit.FINDINGS if wrong or view.findings else Exit.CLEAN


def _print_logs(
    view: View,
    exactness: Exactness,
    config: StoreConfig,
    form: Form,
    problems: Mapping[int, Problem | None] = MappingProxyType({}),
) -> list[LogVerdict]:
    """Print a row for each log. `problems` is what a collection has found."""
    use = Use.OPEN if is_in_use(Path(view.path)) else Use.CLOSED
    logs = LogFactsOfView(view, use)
    stage = StageProgressBar("reading")
    facts: list[PolicyFacts] = []
    read, total = 0, sum(logs.sizes.values())
    try:
        for log_id, size in logs.sizes.items():
            steps = logs.facts(log_id, exactness)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    if done.value is not None:
                        facts.append(done.value)
                    break
                if stage.is_due:
                    stage.show(read / (total or 1), f"{len(facts)} of {counted(len(logs.sizes), 'log')}")
            read += size
    finally:
        stage.end()
    facts += logs.others()
    # A store that is open decides itself when it compacts.
    scope = Scope.REMOVALS if use is Use.OPEN else Scope.MAJOR
    room = PosixDirectory(view.path).space().free
    now = datetime.now().astimezone()
    situation = Situation(now, scope, config.compaction_minor, config.compaction_major, room)
    facts = [replace(one, problem=problems.get(one.log_id) or one.problem) for one in facts]
    verdicts = sorted(decide(facts, situation), key=lambda one: one.log.log_id)
    out = row_writer(form, LOG_COLUMNS)
    for verdict in verdicts:
        row = log_row(verdict, logs.ledgers.get(verdict.log.log_id))
        out.row(coloured(row, verdict) if form is Form.TABLE else row)
    out.end()
    return verdicts


def _summary(verdicts: Sequence[LogVerdict]) -> str:
    come_back = [one for one in verdicts if one.comes_back]
    size = sum(one.comes_back for one in come_back)
    if not come_back:
        return f"nothing comes back from {counted(len(verdicts), 'log')}"
    return f"{size:,} bytes come back from {len(come_back)} of {counted(len(verdicts), 'log')}"


def _problems(verdicts: Sequence[LogVerdict]) -> str:
    kinds = {ReasonKind.DAMAGED: "damaged", ReasonKind.UNACCOUNTED: "with an unaccounted record"}
    counts = {words: sum(one.kind is kind for one in verdicts) for kind, words in kinds.items()}
    return "".join(f", {count} {words}" for words, count in counts.items() if count)


# ── a collection ─────────────────────────────────────────────────────────────────────────────────────────


def _run(path: str, config: StoreConfig, form: Form) -> Exit:
    from recovery.opening.open_store import open_store
    from storage.errors import CorruptionError, StoreError

    _check_is_ours(path)
    # Nothing else uses the disk through this store, and the command ends when the work is done.
    config = replace(config, compaction_rate=None, collection_interval_s=None)
    stage = StageProgressBar("collecting")

    def watch(progress: CollectionProgress) -> None:
        if stage.is_due:
            stage.show(
                progress.read / (progress.total or 1), f"{progress.read:,} of {progress.total:,} bytes"
            )

    try:
        with open_store(path, config) as store:
            try:
                report = store.collect(watch)
            finally:
                stage.end()
    except CorruptionError as error:
        raise StoreRefused(str(error)) from error
    except StoreError as error:
        raise CannotDo(str(error)) from error
    # The logs are looked at again, because closing the store has sealed its last log.
    with open_store_view(path) as view:
        problems = {one.log.log_id: one.log.problem for one in report.problems}
        wrong = _problems(_print_logs(view, Exactness.BY_MAPS, config, form, problems))
    say(f"gc: {_done(report)}{wrong}")
    if report.end is not CollectionEnd.COMPLETE:
        return Exit.PARTLY
    return Exit.FINDINGS if wrong else Exit.CLEAN


def _check_is_ours(path: str) -> None:
    """Raise unless there is a store of ours, because an opening would make one, or import a bookie's."""
    with open_store_view(path) as view:
        if view.index_found is IndexFound.ADOPTED:
            raise CannotDo(f"{path}: a bookie has written here: `ledgerstore rebuild-index` makes it a store")


def _done(report: CollectionReport) -> str:
    parts = [f"{counted(len(report.removed), 'log')} of {report.freed:,} bytes removed"]
    if report.moved_entries:
        entries = counted(report.moved_entries, "entry", "entries")
        parts.append(f"{entries} of {report.moved_bytes:,} bytes moved")
    if report.tombstones:
        parts.append(f"{counted(report.tombstones, 'tombstone')} purged")
    if report.end is not CollectionEnd.COMPLETE:
        parts.append(f"ended early: {report.end.value}")
    return ", ".join(parts)
