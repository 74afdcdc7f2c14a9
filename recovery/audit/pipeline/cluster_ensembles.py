"""The ensembles of a cluster's ledgers, taken from its metadata, for `ledgerstore audit --replicas URI`.

A store belongs to the bookie that its cookie names. Ledgers that are open or in recovery have no last entry,
because more entries may follow.

Ledgers are changed while stores are read: a writer replaces a bookie, auto-recovery moves copies, an owner
deletes. What was found in a ledger that has changed meanwhile is no finding (`without_changed`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.model.ensemble import LedgerEnsembles, Segment
from recovery.audit.pipeline.ensemble_file import QUORUM_MAX, Replicas
from storage.cluster.bookie.identity import EMBEDDED_HOST
from storage.disk import cookie
from storage.disk.cookie_format import Cookie
from storage.disk.posix import PosixDirectory
from storage.entry.model import NO_ENTRY
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from recovery.audit.model.audit_report import AuditReport
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

_NAMED_MAX = 5


def bookie_of(directories: Sequence[Path], instance_id: str | None) -> str | None:
    """Return the bookie that the cookies of a store's directories name; `None` if none names a bookie.

    Raise `InvalidConfig` if a directory belongs to another cluster than that of `instance_id`, or to another
    bookie than the directory before it.
    """
    found: str | None = None
    for directory in directories:
        one = cookie.load(PosixDirectory(directory))
        if not isinstance(one, Cookie) or one.bookie_host == EMBEDDED_HOST:
            continue
        # Ledger ids of two clusters are the same numbers, so the copies of both would be compared.
        if None not in (one.instance_id, instance_id) and one.instance_id != instance_id:
            why = f"its cookie has the instanceId {one.instance_id}, the cluster {instance_id}"
            raise InvalidConfig(str(directory), why)
        if found not in (None, one.bookie_host):
            why = f"its cookie has the bookieHost {one.bookie_host}, another one of the store {found}"
            raise InvalidConfig(str(directory), why)
        found = one.bookie_host
    return found


def stores_by_bookie(bookies: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the path of each bookie's store, from pairs of path and bookie."""
    stores: dict[str, str] = {}
    for path, bookie in bookies:
        if bookie is None:
            continue
        if bookie in stores:
            why = f"its cookie has the bookieHost {bookie}, and so has that of {stores[bookie]}"
            raise InvalidConfig(path, why)
        stores[bookie] = path
    return stores


def ensembles_of(ledger_id: int, metadata: ClusterLedgerMetadata) -> LedgerEnsembles | None:
    """Return where the copies of a ledger have to be; `None` if the audit cannot compare such a ledger."""
    last = None
    segments = metadata.segments
    if metadata.is_closed:
        last = NO_ENTRY if metadata.last_entry is None else metadata.last_entry
        # A recovery may close a ledger before segments that its writer has begun.
        segments = segments[:1] + tuple(one for one in segments[1:] if one.first_entry <= last + 1)
    size, write, ack = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
    is_regular = all(len(set(one.bookies)) == len(one.bookies) == size for one in segments)
    if not is_regular or not 1 <= ack <= write <= min(size, QUORUM_MAX):
        return None
    return LedgerEnsembles(
        ledger_id, write, ack, tuple(Segment(one.first_entry, one.bookies) for one in segments), last
    )


class ClusterEnsembles:
    """Collects the ensembles of the ledgers whose bookies' stores are all at hand."""

    def __init__(self, stores: Mapping[str, str]) -> None:
        self._stores = stores
        self._ledgers: list[LedgerEnsembles] = []
        self._left_out: set[int] = set()
        self._absent: set[str] = set()
        self._irregular: list[int] = []
        self._flaws: list[str] = []

    def add(self, ledger_id: int, metadata: ClusterLedgerMetadata) -> None:
        found = ensembles_of(ledger_id, metadata)
        absent = set() if found is None else found.stores - self._stores.keys()
        if found is None:
            self._irregular.append(ledger_id)
        elif absent:
            self._left_out.add(ledger_id)
            self._absent |= absent
        else:
            self._ledgers.append(found)

    def add_unreadable(self, flaw: str) -> None:
        """Take note of metadata that cannot be read."""
        self._flaws.append(flaw)

    def replicas(self) -> Replicas:
        notes = [f"metadata: {flaw}" for flaw in self._flaws]
        if self._irregular:
            some = ", ".join(map(str, sorted(self._irregular)[:_NAMED_MAX]))
            notes.append(f"metadata: {len(self._irregular)} ledgers with invalid ensembles: {some}")
        if self._left_out:
            notes.append(
                f"{len(self._left_out)} ledgers are not compared, because the audit has no store of"
                f" {', '.join(sorted(self._absent))}"
            )
        ledgers = tuple(sorted(self._ledgers, key=lambda one: one.ledger_id))
        left_out = frozenset(self._left_out | set(self._irregular))
        return Replicas(self._stores, ledgers, left_out, tuple(notes))


def without_changed(report: AuditReport, changed: Iterable[int]) -> AuditReport:
    """Return the report without what was found in the copies of ledgers that have changed meanwhile."""
    ids = frozenset(changed)
    if report.replicas is None or not ids:
        return report
    dropped = {id(one) for one in report.replicas.findings if one.ledger_id in ids}
    notes = tuple(f"ledger {one}: its metadata were changed during the audit" for one in sorted(ids))
    replicas = replace(
        report.replicas,
        findings=tuple(one for one in report.replicas.findings if id(one) not in dropped),
        not_covered=(*report.replicas.not_covered, *notes),
    )
    kept = tuple(one for one in report.findings if id(one) not in dropped)
    return replace(report, replicas=replicas, findings=kept)
