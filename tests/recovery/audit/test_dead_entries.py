"""What a deleted ledger has left is nobody's loss; if it is damaged, that is told as information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import audited_stores
import pytest
from fault_trials import audited

from recovery.audit.faults.copies import Copy
from recovery.verify.finding import Severity
from storage.codec.entry import HEAD
from storage.entry import DigestType

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.faults.chart import LogChart, Record
    from recovery.verify.finding import Finding

_BEHIND_THE_HEAD = 4 + HEAD.size + DigestType.CRC32C.width


def _dead(name: str) -> tuple[LogChart, Record]:
    chart = audited_stores.chart(name)
    return next(
        (log, record)
        for log in chart.logs
        for record in log.entries
        if not log.is_leftover and chart.is_dead(log, record) and record.digest is DigestType.CRC32C
    )


def _damaged(name: str, root: Path) -> tuple[Finding, ...]:
    chart, (log, record) = audited_stores.chart(name), _dead(name)
    copy, path = Copy(chart.root, root), chart.ledgers / log.name
    at = record.offset + _BEHIND_THE_HEAD
    copy.patch(path, at, bytes([path.read_bytes()[at] ^ 1]))
    return audited(root, audited_stores.passwords(name))


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_damage_in_a_dead_entry_is_information(name: str, tmp_path: Path) -> None:
    found = _damaged(name, tmp_path / "store")
    log, record = _dead(name)
    (told,) = [one for one in found if one.kind == "ELG-003"]
    assert told.severity is Severity.INFORMATION
    assert (told.file, told.offset, told.end) == (log.name, record.offset, record.end)
    assert (told.ledger_id, told.first_entry) == (record.ledger_id, record.entry_id)
    assert "deleted ledger" in told.detail
    assert not [one for one in found if one.is_wrong]


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_what_is_whole_is_not_called_damaged(name: str) -> None:
    found = audited(audited_stores.store(name), audited_stores.passwords(name))
    assert not [one for one in found if one.kind == "ELG-003"]
