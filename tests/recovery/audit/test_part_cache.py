"""Kept parts are used only if their bytes cannot have changed."""

from __future__ import annotations

import base64
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from entry_log_builder import Log
from entry_log_tasks import SteppingClock, ledgers_of, log_file, part_of, part_values, scan
from journal_builder import entry_bytes

from recovery.audit.cache import part_table
from recovery.audit.cache.part_cache import FOLDER, PartCache, Reuse
from recovery.audit.cache.part_identity import LogOwner
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from storage.disk import filenames
from storage.entry.digest import mac_key, master_key
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged, Flaw, Torn

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.audit.cache.part_table import LabelledPart
    from recovery.audit.scan.entry_log import ScanLog

HOLE = FlawAt(FlawKind.HOLE, Flaw.NOT_A_RECORD, 2000, 3000)
TORN = Torn(2000, Flaw.LENGTH_CUT)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return log_file(tmp_path / "store")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report"


def keep(report: Path, task: ScanLog, part: LogPart | None = None, known: Any = None) -> str | None:
    kept = PartCache(report, known or ledgers_of(Path(task.path)))
    return kept.keep(task, part_of(task) if part is None else part, kept.identity(task))


def find(report: Path, task: ScanLog, reuse: Reuse = Reuse.SOUND, known: Any = None) -> LogPart | None:
    return PartCache(report, known or ledgers_of(Path(task.path)), reuse).find(task)


def test_a_kept_part_is_found(log: Path, report: Path) -> None:
    part = part_of(scan(log))
    keep(report, scan(log), part)
    found = find(report, scan(log))
    assert found is not None
    assert part_values(found) == part_values(part)


def test_nothing_is_found_if_nothing_was_kept(log: Path, report: Path) -> None:
    assert find(report, scan(log)) is None
    (report / FOLDER).mkdir(parents=True)
    assert find(report, scan(log)) is None


def test_a_link_to_the_log_has_the_same_identity(log: Path, report: Path, tmp_path: Path) -> None:
    keep(report, scan(log))
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / log.name
    link.hardlink_to(log)
    assert find(report, scan(link)) is not None
    log.unlink()
    assert find(report, scan(link)) is not None


def test_a_log_without_a_known_store_is_neither_kept_nor_found(log: Path, report: Path) -> None:
    kept = PartCache(report, {})
    assert kept.keep(scan(log), part_of(scan(log)), kept.identity(scan(log))) is None
    keep(report, scan(log))
    assert find(report, scan(log), known={"other": LogOwner("/stores/a")}) is None


# ── refused ──────────────────────────────────────────────────────────────────────────────────────────


def _append(log: Path) -> None:
    stat = log.stat()
    log.write_bytes(log.read_bytes() + bytes(36))
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _touch(log: Path) -> None:
    stat = log.stat()
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def _put_a_copy(log: Path) -> None:
    copy = log.with_suffix(".copy")
    shutil.copy2(log, copy)
    copy.rename(log)


def _other_header(log: Path) -> None:
    stat = log.stat()
    with log.open("r+b") as file:
        file.seek(100)
        file.write(b"!")
    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("reuse", Reuse)
@pytest.mark.parametrize("change", [_append, _touch, _put_a_copy, _other_header, Path.unlink])
def test_a_log_that_has_changed_is_read_again(
    log: Path, report: Path, reuse: Reuse, change: Callable[[Path], None]
) -> None:
    task = scan(log)
    keep(report, task)
    assert find(report, task, reuse) is not None
    change(log)
    assert find(report, task, reuse) is None


@pytest.mark.parametrize("reuse", Reuse)
@pytest.mark.parametrize(
    "changes",
    [
        {"log_id": 2},
        {"start": 1025},
        {"end": 2000},
        {"entry": 1024},
        {"policy": DigestPolicy(presumed=DigestType.CRC32)},
        {"policy": DigestPolicy()},
        {"steps": {7: 2}},
    ],
    ids=["log", "start", "end", "entry", "presumed", "undeclared", "step"],
)
def test_a_different_task_is_run(log: Path, report: Path, reuse: Reuse, changes: dict[str, Any]) -> None:
    keep(report, scan(log))
    assert find(report, replace(scan(log), **changes), reuse) is None


def test_another_store_s_log_is_another_log(log: Path, report: Path) -> None:
    keep(report, scan(log))
    other = ledgers_of(log, store="/stores/b")
    assert find(report, scan(log), known=other) is None
    keep(report, scan(log), known=other)
    assert find(report, scan(log), known=other) is not None
    assert find(report, scan(log)) is not None


@pytest.mark.parametrize("password", [None, b"another"])
def test_with_another_password_it_is_read_again(log: Path, report: Path, password: bytes | None) -> None:
    policy = DigestPolicy(declared={7: DigestType.MAC, 8: DigestType.CRC32C}, password=b"one")
    keep(report, scan(log, policy))
    assert find(report, scan(log, policy)) is not None
    assert find(report, scan(log, replace(policy, password=password))) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"flaws": (HOLE,)},
        {"maps": (MapRecord(1, 2, Damaged(1, Flaw.BAD_MAP)),)},
        {"stop": TORN},
        {"header": Damaged(0, Flaw.BAD_MAGIC)},
        {"runs": "bad"},
    ],
    ids=["a flaw", "a damaged map", "a torn end", "a damaged header", "a bad entry"],
)
def test_a_part_that_is_not_sound_is_used_only_by_the_audit_that_made_it(
    log: Path, report: Path, changes: dict[str, Any]
) -> None:
    part = part_of(scan(log))
    if changes == {"runs": "bad"}:
        changes = {"runs": part.runs.copy()}
        changes["runs"]["bad"][0] = 1
    # Whether the log is sealed is tested elsewhere.
    known = {str(log): LogOwner("/stores/a", log.stat().st_size)}
    keep(report, scan(log), replace(part, **changes), known)
    assert find(report, scan(log), Reuse.SOUND) is None
    assert find(report, scan(log), Reuse.ENDED) is not None


@pytest.mark.parametrize(("final_end", "is_used"), [(None, False), (-1, False), (0, True)])
def test_of_an_unsealed_log_only_final_ranges_are_used(
    log: Path, report: Path, final_end: int | None, *, is_used: bool
) -> None:
    log.write_bytes(Log().add(entry_bytes(7, 0), entry_bytes(7, 1)).file())
    end = None if final_end is None else log.stat().st_size + final_end
    keep(report, scan(log), known={str(log): LogOwner("/stores/a", end)})
    # What is known now does not matter, because the bytes were read earlier.
    assert (find(report, scan(log), Reuse.SOUND) is not None) == is_used
    assert find(report, scan(log), Reuse.ENDED) is not None


@pytest.mark.parametrize("ends", [{"end": -30, "exit": 0}, {"end": 0, "exit": -30}])
def test_a_range_beyond_the_final_end_is_not_used(log: Path, report: Path, ends: dict[str, int]) -> None:
    log.write_bytes(Log().add(entry_bytes(7, 0), entry_bytes(7, 1)).file())
    size = log.stat().st_size
    part = replace(part_of(scan(log)), end=size + ends["end"], exit=size + ends["exit"])
    task = replace(scan(log), end=part.end)
    keep(report, task, part, {str(log): LogOwner("/stores/a", size - 10)})
    assert find(report, task) is None


@pytest.mark.parametrize("change", [_append, _touch, _put_a_copy, _other_header, Path.unlink])
def test_a_log_that_changes_while_it_is_read_is_not_kept(
    log: Path, report: Path, change: Callable[[Path], None]
) -> None:
    task = scan(log)
    kept, part = PartCache(report, ledgers_of(log)), part_of(task)
    before = kept.identity(task)
    change(log)
    assert kept.keep(task, part, before) is None
    assert not (report / FOLDER).exists()


def test_a_part_of_something_else_is_not_kept(log: Path, report: Path) -> None:
    wrong: list[dict[str, Any]] = [{"log_id": 2}, {"start": 0}, {"end": 9}, {"file_size": 9}]
    for changes in wrong:
        assert keep(report, scan(log), replace(part_of(scan(log)), **changes)) is None


# ── its files ────────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_file_is_not_used(log: Path, report: Path) -> None:
    keep(report, scan(log))
    (file,) = (report / FOLDER).iterdir()
    whole = file.read_bytes()
    for content in (
        b"",
        whole[:-9],
        whole.replace(b"/stores/a", b"/stores/b"),
        bytes(len(whole)),
    ):
        file.write_bytes(content)
        assert find(report, scan(log)) is None


def _decoded(file: Path) -> LabelledPart | None:
    return part_table.decode(file.read_bytes(), file.stem.rpartition(".")[2], 1000)


def _rewritten(file: Path, content: bytes) -> Path:
    """Replace the content of a file by another one that fits its name."""
    file.unlink()
    renamed = file.with_name(f"{file.name.partition('.')[0]}.{part_table.content_digest(content)}.parquet")
    renamed.write_bytes(content)
    return renamed


@pytest.mark.parametrize("changes", [{"salt": "no hexadecimal"}, {"settings": "others"}], ids=str)
def test_a_part_with_another_label_is_not_used(log: Path, report: Path, changes: dict[str, Any]) -> None:
    keep(report, scan(log))
    (file,) = (report / FOLDER).iterdir()
    read = _decoded(file)
    assert read is not None
    file = _rewritten(file, part_table.encode(read.part, replace(read.label, **changes)))
    assert find(report, scan(log), Reuse.ENDED) is None
    _rewritten(file, part_table.encode(read.part, read.label))
    assert find(report, scan(log), Reuse.ENDED) is not None


def test_a_part_of_another_log_under_this_name_is_not_used(log: Path, report: Path) -> None:
    keep(report, scan(log))
    (file,) = (report / FOLDER).iterdir()
    read = _decoded(file)
    assert read is not None
    other = replace(read.label, identity=replace(read.label.identity, log_id=2))
    _rewritten(file, part_table.encode(replace(read.part, log_id=2), other))
    assert find(report, scan(log), Reuse.ENDED) is None


def test_a_leftover_of_an_interrupted_write_does_not_matter(log: Path, report: Path) -> None:
    name = keep(report, scan(log))
    assert name is not None
    whole = report / FOLDER / name
    whole.rename(report / FOLDER / filenames.draft(name)).write_bytes(b"half")
    assert find(report, scan(log)) is None
    assert keep(report, scan(log)) is not None
    assert find(report, scan(log)) is not None


def test_a_part_has_one_file_for_each_verification_setting(log: Path, report: Path) -> None:
    for _ in range(2):
        keep(report, scan(log))
        assert len(list((report / FOLDER).iterdir())) == 1
    other = scan(log, DigestPolicy(presumed=DigestType.CRC32))
    keep(report, other)
    assert len(list((report / FOLDER).iterdir())) == 2
    assert find(report, scan(log)) is not None
    assert find(report, other) is not None


def test_a_part_moves_to_another_report_with_its_age(log: Path, report: Path, tmp_path: Path) -> None:
    clock = SteppingClock()
    old, new = (PartCache(path, ledgers_of(log), clock=clock) for path in (report, tmp_path / "new"))
    old.keep(scan(log), part_of(scan(log)), old.identity(scan(log)))
    old = PartCache(report, ledgers_of(log), clock=clock)
    found = old.found(scan(log), old.identity(scan(log)))
    assert found is not None
    new.adopt(found)
    new = PartCache(tmp_path / "new", ledgers_of(log), clock=clock)
    moved = new.found(scan(log), new.identity(scan(log)))
    assert moved is not None
    assert moved.read_at_ns == found.read_at_ns < clock()


def test_a_clock_that_was_ahead_makes_a_part_old(log: Path, report: Path) -> None:
    ahead = PartCache(report, ledgers_of(log), clock=lambda: 10**18)
    ahead.keep(scan(log), part_of(scan(log)), ahead.identity(scan(log)))
    kept = PartCache(report, ledgers_of(log), clock=lambda: 10**17)
    found = kept.found(scan(log), kept.identity(scan(log)))
    assert found is not None
    assert found.read_at_ns == 0


def test_only_parts_are_forgotten(log: Path, report: Path) -> None:
    name = keep(report, scan(log))
    assert name is not None
    (report / FOLDER / "mine.txt").write_text("mine")
    (report / FOLDER / "gone-1-0-9-any-0.parquet").write_bytes(b"")
    PartCache(report, {}).forget_others({name})
    assert sorted(path.name for path in (report / FOLDER).iterdir()) == sorted([name, "mine.txt"])
    PartCache(report, {}).forget_others(())
    assert [path.name for path in (report / FOLDER).iterdir()] == ["mine.txt"]


def test_no_file_reveals_a_password(log: Path, report: Path) -> None:
    password = b"correct horse battery staple"
    policy = DigestPolicy(
        declared={7: DigestType.MAC, 8: DigestType.CRC32C}, passwords={7: password}, password=password
    )
    keep(report, scan(log, policy))
    keep(report, scan(log, policy), replace(part_of(scan(log, policy)), flaws=(HOLE,)))
    content = b"".join(path.read_bytes() for path in (report / FOLDER).iterdir())
    assert b"MAC" not in content
    for secret in (password, mac_key(password), master_key(password)):
        for form in (secret, secret.hex().encode(), base64.b64encode(secret), secret[:8]):
            assert form not in content
