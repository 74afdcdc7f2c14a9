"""How a part was verified: what matters to it makes it another manner, and nothing else does."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kept_logs import log_file, part_of, scan

from recovery.audit.part_manner import Manners
from recovery.audit.ways import Ways
from recovery.verify.parts import FlawAt, FlawKind, LogPart
from storage.entry import DigestType

if TYPE_CHECKING:
    from pathlib import Path

MAC, CRC32, CRC32C = DigestType.MAC, DigestType.CRC32, DigestType.CRC32C
PLAIN = Ways(presumed=CRC32C)
MACS = Ways(declared={7: MAC, 8: CRC32C}, password=b"secret")


@pytest.fixture
def part(tmp_path: Path) -> LogPart:
    """Of a log with entries of the ledgers 7 and 8."""
    return part_of(scan(log_file(tmp_path)))


def manner(part: LogPart, ways: Ways, steps: Any = None, salt: bytes = b"salt") -> str:
    return Manners().of(part, ways, steps or {}, salt)


def test_who_says_so_does_not_matter(part: LogPart) -> None:
    assert manner(part, PLAIN) == manner(part, Ways(declared={7: CRC32C, 8: CRC32C, 9: MAC}))
    assert manner(part, PLAIN) == manner(part, Ways(presumed=CRC32C, open=frozenset({9})))
    assert manner(part, PLAIN) == manner(part, PLAIN, {7: 1, 9: 3})
    assert manner(part, PLAIN) == manner(part, replace(PLAIN, password=b"of others"))


@pytest.mark.parametrize(
    "ways",
    [
        Ways(),
        Ways(presumed=CRC32),
        Ways(declared={7: CRC32}, presumed=CRC32C),
        Ways(presumed=CRC32C, open=frozenset({8})),
        MACS,
    ],
    ids=["nothing presumed", "another presumed", "another declared", "open", "MAC"],
)
def test_another_type_is_another_manner(part: LogPart, ways: Ways) -> None:
    assert manner(part, ways) != manner(part, PLAIN)


def test_another_step_is_another_manner(part: LogPart) -> None:
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
def test_another_password_is_another_manner(part: LogPart, other: Ways) -> None:
    assert manner(part, other) != manner(part, MACS)


def test_passwords_do_not_run_into_each_other(part: LogPart) -> None:
    one = replace(MACS, password=None, passwords={7: b"a", 9: b"b"})
    for between in (b"", struct.pack(">qqq", 0, 9, 0), struct.pack(">qqq", 1, 9, 0)):
        two = replace(MACS, password=None, passwords={7: b"a" + between + b"b"})
        assert manner(part, one) != manner(part, two)


def test_a_mac_that_was_found_out_asks_for_passwords_too(part: LogPart) -> None:
    found = replace(part, types={7: MAC})
    assert manner(found, Ways(password=b"one")) != manner(found, Ways(password=b"two"))
    nothing = replace(part, unverified={8: 5})
    assert manner(nothing, Ways(password=b"one")) != manner(nothing, Ways())


def test_the_same_password_looks_different_in_each_report(part: LogPart) -> None:
    assert manner(part, MACS, salt=b"one") != manner(part, MACS, salt=b"two")
    assert manner(part, MACS, salt=b"one") == manner(part, MACS, salt=b"one")


def test_a_guess_at_a_password_is_not_cheap(part: LogPart, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def scrypt(_: bytes, **how: Any) -> bytes:
        asked.append(how)
        return b"costly"

    monkeypatch.setattr("hashlib.scrypt", scrypt)
    manners = Manners()
    for _ in range(3):
        manners.of(part, MACS, {}, b"salt")
    # And once for all parts.
    assert [one["n"] * one["r"] * 128 for one in asked] == [16 << 20]


@pytest.mark.parametrize(
    ("ways", "steps"),
    [
        (replace(PLAIN, declared={9: MAC}), {}),
        (replace(PLAIN, open=frozenset({9})), {}),
        (replace(PLAIN, password=b"of others"), {}),
        (PLAIN, {9: 3}),
    ],
    ids=["declared", "open", "password", "step"],
)
def test_where_bytes_make_no_sense_every_ledger_matters(part: LogPart, ways: Ways, steps: Any) -> None:
    flawed = replace(part, flaws=(FlawAt(FlawKind.HOLE, None, 2000, 3000),))
    assert manner(part, ways, steps) == manner(part, PLAIN)
    assert manner(flawed, ways, steps) != manner(flawed, PLAIN)
    assert manner(flawed, replace(PLAIN, declared={}), {9: 1}) == manner(flawed, PLAIN)
