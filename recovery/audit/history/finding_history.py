"""The history of findings over many audits: one record for each error or warning that was ever seen.

It is kept beside the reports as `history.ndjson`, one JSON object in each line. A finding is the same as an
earlier one if kind, store and place are. It is resolved when an audit has read its store and does not find it
again; if it comes back, it is the same finding, open again.

A store is the same under any path: by its cookie, or without one by its path with all links followed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from recovery.audit.findings.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport
    from recovery.audit.model.store_facts import StoreIdentity

FILE = "history.ndjson"
NOT_AUDITED = "DIR-005"

Identity = tuple[str, str, str, int | None, int | None, int | None, int | None]
"""Kind, store, file, offset, ledger, first entry, last entry."""


class BadHistory(ValueError):
    """A file that is no history, or no baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord:
    """One finding, and when audits saw it. Times are ISO 8601, UTC."""

    kind: str
    store: str
    file: str
    offset: int | None
    ledger: int | None
    first_entry: int | None
    last_entry: int | None
    severity: str
    count: int
    detail: str
    first_seen: str
    last_seen: str
    resolved: str | None = None
    """When an audit did not find it any more; `None` as long as it is open."""
    audits: int = 1
    """How many audits have found it."""
    store_key: str = ""
    """The key of the store, which does not depend on its path; empty in a record of an earlier version."""

    @property
    def identity(self) -> Identity:
        ids = self.ledger, self.first_entry, self.last_entry
        return self.kind, self.store, self.file, self.offset, *ids


@dataclass(frozen=True, slots=True)
class FindingHistory:
    """All records, the oldest first."""

    records: tuple[FindingRecord, ...] = ()
    updated: str = ""
    """When the last audit ended; empty if there was none."""

    def by_identity(self) -> Mapping[Identity, FindingRecord]:
        return {one.identity: one for one in self.records}

    @property
    def open(self) -> tuple[FindingRecord, ...]:
        return tuple(one for one in self.records if one.resolved is None)

    @property
    def new(self) -> tuple[FindingRecord, ...]:
        """Findings that the last audit has seen first."""
        return tuple(one for one in self.open if one.first_seen == self.updated)

    @property
    def just_resolved(self) -> tuple[FindingRecord, ...]:
        """Findings that the last audit has not seen any more."""
        return tuple(one for one in self.records if one.resolved is not None and one.resolved == self.updated)


NO_HISTORY = FindingHistory()


ACCEPTED = "; accepted"
"""The end of the detail of a finding that a baseline has made information."""


def is_accepted(finding: Finding) -> bool:
    return finding.detail.endswith(ACCEPTED)


def identity_of(finding: Finding) -> Identity:
    """Return the fields that are equal in two records of the same finding of one store."""
    place = finding.kind, finding.store, finding.file, finding.offset
    return *place, finding.ledger_id, finding.first_entry, finding.last_entry


class StoreKeys:
    """The keys that identify the stores of a report, whatever their paths are."""

    def __init__(self, report: AuditReport) -> None:
        cookies = {one.store: _cookie_key(one.identity) for one in report.stores}
        copies = Counter(cookies.values())
        # A copy of a whole directory has the cookie of its source: only the paths tell such stores apart.
        self._cookies = {path: key for path, key in cookies.items() if key and copies[key] == 1}
        self._stores = {key: path for path in cookies for key in self.keys(path)}

    def keys(self, store: str) -> tuple[str, ...]:
        """Return all keys of the store at a path, the best one first."""
        cookie = self._cookies.get(store)
        path = os.path.realpath(store) if store else ""
        return (path,) if cookie is None else (cookie, path)

    def path(self, record: FindingRecord) -> str:
        """Return the path that the report has for the store of a record, or that of the record."""
        known = (self._stores.get(key) for key in (record.store_key, os.path.realpath(record.store)))
        return next((path for path in known if path is not None), record.store)


def _cookie_key(identity: StoreIdentity) -> str:
    # The instance of a cluster is the same in all of its bookies.
    return f"{identity.instance_id}/{identity.bookie_id}" if identity.instance_id else ""


def _under_their_paths(history: FindingHistory, keys: StoreKeys) -> dict[Identity, FindingRecord]:
    """Return the records with the paths that the stores have now. Two records of one finding become one."""
    found: dict[Identity, FindingRecord] = {}
    for record in history.records:
        moved = replace(record, store=keys.path(record))
        other = found.get(moved.identity)
        if other is not None:
            latest = max(moved, other, key=lambda one: one.last_seen)
            is_open = None in (moved.resolved, other.resolved)
            moved = replace(
                latest,
                first_seen=min(moved.first_seen, other.first_seen),
                resolved=None if is_open else latest.resolved,
                audits=moved.audits + other.audits,
            )
        found[moved.identity] = moved
    return found


def continued(history: FindingHistory, report: AuditReport) -> FindingHistory:
    """Return the history after an audit."""
    keys = StoreKeys(report)
    now, records = report.ended, _under_their_paths(history, keys)
    found = {identity_of(one): one for one in report.findings if one.is_wrong or is_accepted(one)}
    for identity, finding in found.items():
        before = records.get(identity)
        seen = _record(finding, now, keys.keys(finding.store)[0])
        if before is not None:
            seen = replace(seen, first_seen=before.first_seen, audits=before.audits + 1)
        records[identity] = seen
    read = _stores_that_were_read(report)
    for identity, record in records.items():
        if record.resolved is None and identity not in found and record.store in read:
            records[identity] = replace(record, resolved=now)
    return FindingHistory(tuple(sorted(records.values(), key=lambda one: one.first_seen)), now)


def _stores_that_were_read(report: AuditReport) -> set[str]:
    unread = {one.store for one in report.findings if one.kind == NOT_AUDITED}
    return {one.store for one in report.stores} - unread


def _record(finding: Finding, now: str, store_key: str) -> FindingRecord:
    kind, store, file, offset, ledger, first, last = identity_of(finding)
    return FindingRecord(
        kind=kind,
        store=store,
        file=file,
        offset=offset,
        ledger=ledger,
        first_entry=first,
        last_entry=last,
        severity=Severity(finding.severity).name.lower(),
        count=finding.count,
        detail=finding.detail,
        first_seen=now,
        last_seen=now,
        store_key=store_key,
    )


# ── as text ──────────────────────────────────────────────────────────────────────────────────────────────


def encode(history: FindingHistory) -> str:
    """Return one line for the history, and one for each record."""
    lines = [{"updated": history.updated}, *map(asdict, history.records)]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def decode(text: str) -> FindingHistory:
    """Return the history of a file's text. Raise `BadHistory` with the line."""
    updated, records = "", []
    for number, fields in _objects(text):
        if fields.keys() == {"updated"}:
            updated = fields["updated"]
            continue
        try:
            records.append(FindingRecord(**fields))
        except TypeError as error:
            raise BadHistory(f"line {number}: {error}") from None
    return FindingHistory(tuple(records), updated)


def decode_identities(text: str) -> frozenset[Identity]:
    """Return the findings that the lines of a baseline name, whatever else the lines say.

    Rows of `ledgerstore verify --ndjson` and of `ledgerstore audit history --ndjson` are such lines. In place
    of the store's path a finding may have the key of the store.
    """
    return frozenset(
        (
            str(fields["kind"]),
            store,
            str(fields.get("file") or ""),
            fields.get("offset"),
            fields.get("ledger"),
            fields.get("first_entry"),
            fields.get("last_entry"),
        )
        for _, fields in _objects(text)
        if "kind" in fields
        for store in _stores_of(fields)
    )


def _stores_of(fields: dict[str, Any]) -> set[str]:
    path, key = str(fields.get("store") or ""), str(fields.get("store_key") or "")
    return {os.path.realpath(path) if path else "", *({key} if key else ())}


def _objects(text: str) -> Iterable[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise BadHistory(f"line {number}: {error}") from None
        if not isinstance(fields, dict):
            raise BadHistory(f"line {number}: no JSON object")
        yield number, fields
