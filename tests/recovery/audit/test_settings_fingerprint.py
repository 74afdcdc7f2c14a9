"""The fingerprint of the verification settings: everything that matters to a part changes it, and nothing
else.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from entry_log_tasks import log_file, part_of, scan

from recovery.audit.cache.settings_fingerprint import SettingsFingerprint
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from pathlib import Path

MAC, CRC32, CRC32C = DigestType.MAC, DigestType.CRC32, DigestType.CRC32C
PLAIN = DigestPolicy(presumed=CRC32C)
MACS = DigestPolicy(declared={7: MAC, 8: CRC32C}, password=b"secret")


@pytest.fixture
def part(tmp_path: Path) -> LogPart:
    """A part of a log with entries of ledgers 7 and 8."""
    return part_of(scan(log_file(tmp_path)))


def manner(part: LogPart, policy: DigestPolicy, steps: Any = None, salt: bytes = b"salt") -> str:
    return SettingsFingerprint().of(part, policy, steps or {}, salt)


def test_it_does_not_matter_whether_a_type_is_declared_or_presumed(part: LogPart) -> None:
    assert manner(part, PLAIN) == manner(part, DigestPolicy(declared={7: CRC32C, 8: CRC32C, 9: MAC}))
    assert manner(part, PLAIN) == manner(part, DigestPolicy(presumed=CRC32C, open=frozenset({9})))
    assert manner(part, PLAIN) == manner(part, PLAIN, {7: 1, 9: 3})
    assert manner(part, PLAIN) == manner(part, replace(PLAIN, password=b"of others"))


@pytest.mark.parametrize(
    "policy",
    [
        DigestPolicy(),
        DigestPolicy(presumed=CRC32),
        DigestPolicy(declared={7: CRC32}, presumed=CRC32C),
        DigestPolicy(presumed=CRC32C, open=frozenset({8})),
        MACS,
    ],
    ids=["nothing presumed", "another presumed", "another declared", "open", "MAC"],
)
def test_another_type_changes_the_fingerprint(part: LogPart, policy: DigestPolicy) -> None:
    assert manner(part, policy) != manner(part, PLAIN)


def test_another_step_changes_the_fingerprint(part: LogPart) -> None:
    assert manner(part, PLAIN, {7: 3}) != manner(part, PLAIN)
    assert manner(part, PLAIN, {7: 3}) != manner(part, PLAIN, {8: 3})


@pytest.mark.parametrize(
    "other",
    [
        replace(MACS, password=None),
        replace(MACS, password=b"another"),
        replace(MACS, password=None, passwords={7: b"secret"}),
        replace(MACS, passwords={7: b"another"}),
    ],
    ids=["none", "another", "of one ledger", "of one ledger, another"],
)
def test_another_password_changes_the_fingerprint(part: LogPart, other: DigestPolicy) -> None:
    assert manner(part, other) != manner(part, MACS)


def test_passwords_are_delimited(part: LogPart) -> None:
    one = replace(MACS, password=None, passwords={7: b"a", 9: b"b"})
    for between in (b"", struct.pack(">qqq", 0, 9, 0), struct.pack(">qqq", 1, 9, 0)):
        two = replace(MACS, password=None, passwords={7: b"a" + between + b"b"})
        assert manner(part, one) != manner(part, two)


def test_an_inferred_mac_also_depends_on_passwords(part: LogPart) -> None:
    found = replace(part, types={7: MAC})
    assert manner(found, DigestPolicy(password=b"one")) != manner(found, DigestPolicy(password=b"two"))
    nothing = replace(part, unverified={8: 5})
    assert manner(nothing, DigestPolicy(password=b"one")) != manner(nothing, DigestPolicy())


def test_the_same_password_looks_different_in_each_report(part: LogPart) -> None:
    assert manner(part, MACS, salt=b"one") != manner(part, MACS, salt=b"two")
    assert manner(part, MACS, salt=b"one") == manner(part, MACS, salt=b"one")


def test_guessing_a_password_is_expensive(part: LogPart, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def scrypt(_: bytes, **how: Any) -> bytes:
        asked.append(how)
        return b"costly"

    monkeypatch.setattr("hashlib.scrypt", scrypt)
    manners = SettingsFingerprint()
    for _ in range(3):
        manners.of(part, MACS, {}, b"salt")
    # Once for all parts.
    assert [one["n"] * one["r"] * 128 for one in asked] == [16 << 20]


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        (replace(PLAIN, declared={9: MAC}), {}),
        (replace(PLAIN, open=frozenset({9})), {}),
        (replace(PLAIN, password=b"of others"), {}),
        (PLAIN, {9: 3}),
    ],
    ids=["declared", "open", "password", "step"],
)
def test_for_a_part_with_flaws_every_ledger_matters(part: LogPart, policy: DigestPolicy, steps: Any) -> None:
    flawed = replace(part, flaws=(FlawAt(FlawKind.HOLE, None, 2000, 3000),))
    assert manner(part, policy, steps) == manner(part, PLAIN)
    assert manner(flawed, policy, steps) != manner(flawed, PLAIN)
    assert manner(flawed, replace(PLAIN, declared={}), {9: 1}) == manner(flawed, PLAIN)
