"""Every file of a store has a kind, and every meaningful byte belongs to a field."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from recovery.proving.file_kinds import fields
from recovery.proving.lab import ledgerstore_lab
from recovery.proving.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from recorded import FinishedWorkload

    Play = Callable[[str], FinishedWorkload]

FIELDS = {
    "journal": {
        "header: salt",
        "entry: length",
        "entry: digest",
        "entry: payload",
        "seal: durable offset",
        "room",
    },
    "entry log": {"header: store id", "entry: size", "entry: digest", "ledgers map: ledgers", "filler: fill"},
    "mark": {"mark: journal", "mark: newest log", "mark: crc"},
    "rows": {"group: sequence", "group: row", "group: crc"},
    "index": {"meta 0: last page", "meta 1: transaction", "page: lower", "page: nodes"},
    "cookie": {"cookie: instanceId"},
}


def kinds_and_files(play: Play) -> list[tuple[str, str, bytes]]:
    kind_of = ledgerstore_lab().spec.kind_of
    found = []
    for name in WORKLOADS:
        root = play(name).root
        paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
        found += [(kind_of(f"{path.relative_to(root)}"), path.name, path.read_bytes()) for path in paths]
    return found


@pytest.fixture
def files(played: Play) -> list[tuple[str, str, bytes]]:
    return kinds_and_files(played)


def test_every_file_has_a_kind_or_is_never_read(files: list[tuple[str, str, bytes]]) -> None:
    without = {name for kind, name, _ in files if not kind}
    assert {name for name in without if not name.endswith(".draft")} <= {
        "LOCK",
        "lock.mdb",
        "data.mdb",
        "sums",
        "reserve",
        "reserve.opening",
    }
    assert {kind for kind, _, _ in files} >= FIELDS.keys()


@pytest.mark.parametrize("kind", FIELDS)
def test_a_file_s_fields_lie_side_by_side_within_it(kind: str, files: list[tuple[str, str, bytes]]) -> None:
    names: Counter[str] = Counter()
    for data in (data for one, _, data in files if one == kind):
        found = sorted(fields(kind, data), key=lambda field: field[1])
        names.update(name for name, _, _ in found)
        assert all(size > 0 for _, _, size in found)
        assert all(first[1] + first[2] <= second[1] for first, second in pairwise(found))
        assert found[-1][1] + found[-1][2] <= len(data)
    assert names.keys() >= FIELDS[kind]


def test_a_journal_and_a_log_are_taken_apart_to_their_last_byte(files: list[tuple[str, str, bytes]]) -> None:
    for kind, _, data in files:
        if kind in ("journal", "entry log", "mark", "rows", "cookie"):
            assert sum(size for _, _, size in fields(kind, data)) == len(data)


@pytest.mark.parametrize("kind", [*FIELDS, "index sums"])
def test_invalid_bytes_have_fields_as_far_as_they_can_be_read(kind: str) -> None:
    for data in (b"", b"\0", b"x" * 100, bytes(5000), b"BKLG\0\0\0\6" + b"\xff" * 600):
        assert all(offset + size <= len(data) for _, offset, size in fields(kind, data))
