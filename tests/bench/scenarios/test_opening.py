"""Every round opens the same files of a crash."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from contenders.crash_contenders import CrashContender
from contest import contest
from contest.contender_process import ContenderFailed, ContenderProcess
from contest.contest import why_unavailable
from contest.run_size import TINY
from contest.scratch_directory import copy_synced
from scenarios import opening

if TYPE_CHECKING:
    from pathlib import Path

    from contest.result import Result

[ROW] = opening.scenarios(TINY)
NAMES = [one.name for one in ROW.contenders]


def held(name: str, place: Path, rounds: int) -> Result:
    [one] = [one for one in ROW.contenders if one.name == name]
    if why := why_unavailable(one):
        pytest.skip(why)
    found = contest.run_scenario(replace(ROW, contenders=[one], rounds=rounds), place)
    assert found.flaws == []
    return found


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.bench
@pytest.mark.parametrize("name", NAMES)
def test_every_round_opens_the_same_files_of_the_crash(tmp_path: Path, name: str) -> None:
    held(name, tmp_path, rounds=0)
    directory = tmp_path / name.replace(" ", "-")
    before = digests(directory / "left")
    [one] = [one for one in ROW.contenders if one.name == name]
    with ContenderProcess(one, directory) as process:
        for _ in range(2):
            assert ROW.turn(process)["ms"] > 0
            assert digests(directory / "left") == before
    assert [path.name for path in directory.iterdir()] == ["left"]


@pytest.mark.bench
@pytest.mark.parametrize("name", [name for name in NAMES if name != "sqlite3"])
def test_all_entries_are_in_the_journals_of_the_compared_contenders(tmp_path: Path, name: str) -> None:
    run_size = replace(TINY, crashed=12_000_000)
    [row] = opening.scenarios(run_size)
    [one] = [one for one in row.contenders if one.name == name]
    if why := why_unavailable(one):
        pytest.skip(why)
    found = contest.run_scenario(replace(row, contenders=[one]), tmp_path)
    assert found.values(name, "in_journals")[0] >= 0.99 * run_size.crashed
    assert {name} <= {"ours", *row.bars[0].against}


def test_a_contender_without_the_first_entry_fails(tmp_path: Path) -> None:
    one = CrashContender(tmp_path, "sqlite3", {}, {}, size=10)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="the first entry is missing"):
        one.open("empty")
    one.close()


def test_a_store_whose_process_still_runs_cannot_be_opened(tmp_path: Path) -> None:
    [ours] = [one for one in ROW.contenders if one.name == "ours"]
    with ContenderProcess(ours, tmp_path) as process:
        process.ask("leave", name="left", calls=2)
        with pytest.raises(ContenderFailed, match="AlreadyOpen"):
            process.ask("open", name="left")


def test_a_copy_links_only_the_files_of_the_given_patterns(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "1.txn").write_bytes(b"journal")
    (source / "state").write_bytes(b"state")
    target = copy_synced(source, tmp_path / "target", "*.txn")
    assert digests(target) == digests(source)
    assert (target / "deep" / "1.txn").samefile(source / "deep" / "1.txn")
    assert not (target / "state").samefile(source / "state")
