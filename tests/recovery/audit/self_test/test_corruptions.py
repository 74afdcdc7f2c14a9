"""Each damage changes what its name says, in the copy only, and follows from its seed."""

from __future__ import annotations

import filecmp
import os
import shutil
from itertools import count
from typing import TYPE_CHECKING

import audited_stores
import pytest
from audited_stores import NAMES

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.self_test.trials import STORE_FAULTS, BadSector, plant, unreadable
from storage.disk.posix import open_file
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.self_test.content import StoreContent
    from recovery.audit.self_test.trials import Planted

_STORES = ("killed", "closed", "01_clean", "08_digests")


def _planted(fault: str, root: Path, seed: int = 1) -> tuple[StoreContent, Planted]:
    """Plant the fault in the first store that has a place for it."""
    for name in _STORES:
        content = audited_stores.content(name)
        planted = plant(content, fault, seed, root)
        if planted is not None:
            return content, planted
        shutil.rmtree(root)
    raise AssertionError("none of the stores has a place for it")


def _files(root: Path) -> dict[str, Path]:
    return {str(path.relative_to(root)): path for path in root.rglob("*") if not path.is_dir()}


def _differing(before: Path, after: Path) -> set[str]:
    """Return the files that are different in the two directories, except locks."""
    old, new = _files(before), _files(after)
    return (old.keys() ^ new.keys()) | {
        name
        for name in old.keys() & new.keys()
        if not new[name].is_file() or not filecmp.cmp(old[name], new[name], shallow=False)
    }


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_a_fault_changes_the_file_that_it_names_and_no_other(fault: str, tmp_path: Path) -> None:
    content, planted = _planted(fault, tmp_path / "copy")
    differing = _differing(content.root, tmp_path / "copy")
    if planted.bad_sector is None:
        assert differing or planted.damage.place == "is a directory"
    for name in differing - {"ledgers/current/index/lock.mdb"}:
        assert planted.damage.file in name.split("/")


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_the_same_seed_plants_the_same(fault: str, tmp_path: Path) -> None:
    _, first = _planted(fault, tmp_path / "first", seed=7)
    _, second = _planted(fault, tmp_path / "second", seed=7)
    assert first.damage == second.damage


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_expected_findings_are_in_the_catalogue(fault: str, tmp_path: Path) -> None:
    _, planted = _planted(fault, tmp_path / "copy")
    expected = [*planted.damage.allowed, *(one for wanted in planted.damage.wanted for one in wanted)]
    assert {kind for one in expected for kind in one.kinds} | planted.damage.also <= KINDS.keys()


def test_the_source_of_a_copy_is_not_changed(tmp_path: Path) -> None:
    source = audited_stores.store("killed")
    shutil.copytree(source, tmp_path / "before")
    for number, fault in enumerate(STORE_FAULTS):
        plant(audited_stores.content("killed"), fault, number, tmp_path / str(number))
    assert _differing(tmp_path / "before", source) == set()


@pytest.mark.parametrize("kind", ["entry log", "journal"])
@pytest.mark.parametrize(
    ("field", "start", "end"),
    [
        ("a size", 0, 4),
        ("a ledger id", 4, 12),
        ("an entry id", 12, 20),
        ("a last add confirmed", 20, 28),
        ("a length", 28, 36),
    ],
)
def test_one_bit_of_that_field_is_flipped(
    kind: str, field: str, start: int, end: int, tmp_path: Path
) -> None:
    for seed in range(5):
        root = tmp_path / str(seed)
        content, planted = _planted(f"{kind}: bit in {field}", root, seed)
        files = content.logs if kind == "entry log" else content.journals
        file = next(one for one in files if one.name == planted.damage.file)
        before, after = file.path.read_bytes(), (root / file.path.relative_to(content.root)).read_bytes()
        changed = [at for at, was, now in zip(count(), before, after) if was != now]
        assert len(before) == len(after)
        assert len(changed) == 1
        assert (before[changed[0]] ^ after[changed[0]]).bit_count() == 1
        piece = next(one for one in file.pieces if one.start <= changed[0] < one.end)
        assert start <= changed[0] - piece.start < end


def test_reads_of_a_bad_sector_fail_and_others_do_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(4096 * 3))
    with unreadable(BadSector(path, 4096, 8192)), open_file(str(path)) as file:
        assert file.read(0, 4096) == path.read_bytes()[:4096]
        with pytest.raises(OSError, match="Input/output"):
            file.read(4000, 200)
        with pytest.raises(OSError, match="Input/output"):
            file.read_into(8000, memoryview(bytearray(500)))
        assert file.read_into(8192, memoryview(bytearray(4096))) == 4096
    with open_file(str(path)) as file:
        assert len(file.read(4000, 200)) == 200


# ── the content of an undamaged store ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_the_records_of_a_log_have_no_gaps_up_to_its_end(name: str) -> None:
    content = audited_stores.content(name)
    for log in content.logs:
        at = HEADER_SIZE
        for piece in log.pieces:
            assert piece.start == at
            at = piece.end
        # A bookie's log that is only named, and one of ours up to its durable end.
        assert at >= min(content.state.log_ends.get(log.number, log.size), log.size) or log.size == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_index_points_at_the_records(name: str) -> None:
    content = audited_stores.content(name)
    for ledger_id, places in content.places.items():
        for entry_id in places:
            _, piece = content.record_of(ledger_id, entry_id)
            assert (piece.ledger_id, piece.entry_id, piece.is_indexed) == (ledger_id, entry_id, True)


def test_the_places_of_a_ledger_that_was_deleted_since_do_not_count() -> None:
    # A missing or wrong row of it is no damage, because the next opening removes all of them.
    content = audited_stores.content("lab: compaction")
    assert content.unindexed == {22}
    assert 22 in content.deleted
    assert 22 not in content.places
    assert any(piece.ledger_id == 22 for log in content.logs for piece in log.entries)


def test_truncations_are_known() -> None:
    content = audited_stores.content("lab: truncation")
    assert {one for one in content.first_ids if one not in content.unindexed} == {1, 20}
    cut = [piece for log in content.logs for piece in log.entries if content.is_truncated(piece)]
    assert cut
    assert not [one for one in cut if one.entry_id in content.places[one.ledger_id]]
