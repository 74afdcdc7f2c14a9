"""An audit at work: what was asked for, and what happens when it is interrupted."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.shell.audit_engines import started
from recovery.shell.audit_needs import check_is_there, size_of
from recovery.shell.exits import CannotDo, ended_as_if_interrupted, say

if TYPE_CHECKING:
    from recovery.audit.asked import Keep
    from recovery.audit.ensembles import Replicas
    from recovery.audit.inspected import AuditReport
    from recovery.shell.audit_engines import Wanted
    from recovery.shell.passwords import Passwords

_PARTS = "parts"


class Order(NamedTuple):
    """What was said on the command line."""

    paths: tuple[str, ...]
    replicas: str | None
    wanted: Wanted
    passwords: Passwords
    place: Path
    since: str | None
    reread: float
    is_resumed: object


def place(out: str | None) -> Path:
    """Where the report goes. Not after an hour is it time to learn that nothing can be written there."""
    now = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    chosen = Path(out or f"audit-{now}")
    nearest = next(path for path in (chosen, *chosen.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise CannotDo(f"not a directory: {nearest}")
    return chosen


def done(order: Order) -> AuditReport:
    """The audit, its report written."""
    from recovery.audit.report import kept
    from storage.errors import StoreError

    for path in order.paths:
        check_is_there(path)
    try:
        with ended_as_if_interrupted():
            report = _inspected(order)
            kept.write(report, order.place)
    except StoreError as error:
        raise CannotDo(str(error)) from error
    except KeyboardInterrupt:
        say(f"audit: stopped part-way; the same with --resume --out {order.place} goes on")
        raise
    return report


def _inspected(order: Order) -> AuditReport:
    from recovery.audit import ensembles
    from recovery.audit.asked import Asked
    from recovery.audit.fitting import inspect_with_what_fits
    from recovery.audit.ways import Ways
    from recovery.shell.audit_watch import AuditWatch

    replicas = None if order.replicas is None else ensembles.load(order.replicas)
    ways = Ways(passwords=order.passwords.by_ledger, password=order.passwords.otherwise)
    keep = _keep(order)
    size = size_of(_all_paths(order.paths, replicas))
    argv = ("ledgerstore", *sys.argv[1:])
    with started(order.wanted, size) as (engine, jobs), AuditWatch() as watch:
        return inspect_with_what_fits(Asked(order.paths, ways, engine, jobs, replicas, watch, keep, argv))


def _keep(order: Order) -> Keep:
    from recovery.audit.asked import Keep

    since = None if order.since is None else Path(order.since)
    if since is not None and not (since / _PARTS).is_dir():
        raise CannotDo(f"{since} is no report, or has no parts of logs: there is nothing to go on from")
    if order.is_resumed and not (order.place / _PARTS).is_dir():
        say(f"there is nothing in {order.place} to go on from: everything is read")
    return Keep(order.place, since, order.reread, bool(order.is_resumed))


def _all_paths(paths: tuple[str, ...], replicas: Replicas | None) -> set[str]:
    return {*paths, *(replicas.stores.values() if replicas else ())}
