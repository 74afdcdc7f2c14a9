"""A crash is opened again and again, and is always the same one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import contest
import opening
import pytest
from contest import why_not
from crashing import Crashing
from effort import TINY
from player import Failed, Player
from scratch import copied

if TYPE_CHECKING:
    from pathlib import Path

    from result import Result

[ROW] = opening.scenarios(TINY)
NAMES = [one.name for one in ROW.contenders]


def held(name: str, place: Path, rounds: int) -> Result:
    [one] = [one for one in ROW.contenders if one.name == name]
    if why := why_not(one):
        pytest.skip(why)
    found = contest.hold(replace(ROW, contenders=[one], rounds=rounds), place)
    assert found.flaws == []
    return found


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_round_opens_what_the_crash_has_left(tmp_path: Path, name: str) -> None:
    held(name, tmp_path, rounds=0)
    directory = tmp_path / name.replace(" ", "-")
    before = digests(directory / "left")
    [one] = [one for one in ROW.contenders if one.name == name]
    with Player(one, directory) as player:
        for _ in range(2):
            assert ROW.turn(player)["ms"] > 0
            assert digests(directory / "left") == before
    assert [path.name for path in directory.iterdir()] == ["left"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sqlite3"])
def test_all_that_was_added_is_in_the_journals_of_who_has_a_bar(tmp_path: Path, name: str) -> None:
    effort = replace(TINY, crashed=12_000_000)
    [row] = opening.scenarios(effort)
    [one] = [one for one in row.contenders if one.name == name]
    if why := why_not(one):
        pytest.skip(why)
    found = contest.hold(replace(row, contenders=[one]), tmp_path)
    assert found.values(name, "in_journals")[0] >= 0.99 * effort.crashed
    assert {name} <= {"ours", *row.bars[0].against}


def test_who_does_not_find_the_first_entry_has_failed(tmp_path: Path) -> None:
    one = Crashing(tmp_path, "sqlite3", {}, {}, size=10)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="the first entry is missing"):
        one.open("empty")
    one.close()


def test_one_that_was_not_killed_behind_its_adds_cannot_be_opened_twice(tmp_path: Path) -> None:
    [ours] = [one for one in ROW.contenders if one.name == "ours"]
    with Player(ours, tmp_path) as player:
        player.ask("leave", name="left", calls=2)
        with pytest.raises(Failed, match="StoreLocked"):
            player.ask("open", name="left")


def test_a_copy_shares_the_files_it_may_and_no_others(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "1.txn").write_bytes(b"journal")
    (source / "state").write_bytes(b"state")
    target = copied(source, tmp_path / "target", "*.txn")
    assert digests(target) == digests(source)
    assert (target / "deep" / "1.txn").samefile(source / "deep" / "1.txn")
    assert not (target / "state").samefile(source / "state")
