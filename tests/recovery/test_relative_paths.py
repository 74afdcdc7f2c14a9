"""A relative path means the directory that it named when it was given, whatever `os.chdir` does later."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from store_internals import checkpoint_of

from recovery import open_async_store, open_store, open_view
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.handover.handover import hand_over
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.errors import InvalidConfig
from storage.index.lmdb.directory import LmdbIndexDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    entry_size_max=8 << 10,
    group_size_max=64 << 10,
    journal_size=1 << 20,
)


def files(path: Path) -> dict[str, bytes]:
    """Every file of a store with its content, except for LMDB's table of readers."""
    return {
        str(one.relative_to(path)): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file() and one.name != "lock.mdb"
    }


@pytest.fixture
def here_and_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two directories, each with a closed store called `data`; the first is the current directory."""
    here, there = tmp_path / "here", tmp_path / "there"
    for place in (here, there):
        place.mkdir()
        with open_store(place / "data", QUIET) as store:
            store.ledger(1).append(place.name.encode())
    monkeypatch.chdir(here)
    return here, there


def payloads(path: Path) -> list[bytes]:
    with open_store(path, QUIET) as store:
        return list(store.ledger(1).payloads())


def test_a_store_opened_by_a_relative_path_stays_where_it_was_opened(
    here_and_there: tuple[Path, Path],
) -> None:
    here, there = here_and_there
    before = files(there / "data")
    with open_store("data", QUIET) as store:
        assert store.path == str(here / "data")
        store.ledger(1).append(b"more")
        os.chdir(there)
        store.checkpoint()
        store.ledger(1).append(b"and more")
    assert files(there / "data") == before
    assert payloads(here / "data") == [b"here", b"more", b"and more"]
    assert payloads(there / "data") == [b"there"]


def test_a_store_goes_on_where_the_new_directory_has_no_such_store(
    here_and_there: tuple[Path, Path],
) -> None:
    here, there = here_and_there
    empty = there / "empty"
    empty.mkdir()
    with open_store("data", QUIET) as store:
        os.chdir(empty)
        store.ledger(1).append(b"more")
        store.checkpoint()
    assert list(empty.iterdir()) == []
    assert payloads(here / "data") == [b"here", b"more"]


def test_an_async_store_is_opened_where_the_path_was_given(here_and_there: tuple[Path, Path]) -> None:
    here, there = here_and_there
    before = files(there / "data")

    async def main() -> None:
        opening = open_async_store("data", QUIET)
        os.chdir(there)
        async with opening as store:
            assert store.path == str(here / "data")
            await store.ledger(1).append(b"more")
            os.chdir(here.parent)
            await store.checkpoint()

    asyncio.run(main())
    assert files(there / "data") == before
    assert payloads(here / "data") == [b"here", b"more"]


def test_a_view_reads_the_store_that_its_path_named(here_and_there: tuple[Path, Path]) -> None:
    here, there = here_and_there
    with open_view("data") as view:
        os.chdir(there)
        found = view.data(1, 0)
        assert view.path == str(here / "data")
    assert found is not None
    assert found.endswith(b"here")


def test_an_audit_reads_the_store_that_its_path_named(here_and_there: tuple[Path, Path]) -> None:
    _, there = here_and_there
    with (there / "data/ledgers/current/lastMark").open("r+b") as mark:
        mark.truncate(3)
    calls: list[object] = []

    def watch(progress: object) -> None:
        if not calls:
            os.chdir(there)
        calls.append(progress)

    report = run_audit(AuditRequest(("data",), watch=watch))
    assert calls
    assert not report.findings


def test_a_hand_over_changes_the_store_that_its_path_named(
    here_and_there: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = here_and_there
    before = files(there / "data")
    monkeypatch.setattr(
        "recovery.handover.handover._checkpoint", _moving_first(there, "recovery.handover.handover")
    )
    hand_over("data", config=QUIET)
    assert Path.cwd() == there
    assert files(there / "data") == before
    assert (here / "data/ledgers/current/lastId").is_file()
    assert payloads(here / "data") == [b"here"]


def _moving_first(to: Path, module: str) -> Callable[[object], object]:
    """The module's checkpoint, after the process has changed its directory."""
    from importlib import import_module

    checkpoint: Callable[[object], object] = checkpoint_of(import_module(module))

    def moving(parts: object) -> object:
        os.chdir(to)
        return checkpoint(parts)

    return moving


def test_a_directory_and_an_index_are_where_their_relative_paths_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for one in (here, there):
        (one / "ledgers").mkdir(parents=True)
    monkeypatch.chdir(here)
    directory = PosixDirectory("ledgers")
    place = LmdbIndexDirectory(directory, "ledgers", 1 << 20)
    os.chdir(there)
    place.draft().close()
    directory.create("0.log").close()
    assert sorted(directory.names()) == ["0.log", "index.draft"]
    assert list((there / "ledgers").iterdir()) == []


def test_every_opener_refuses_an_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for opener in (open_store, open_async_store, open_view, hand_over, PosixDirectory):
        with pytest.raises(InvalidConfig, match="an empty path"):
            opener("")
    assert list(tmp_path.iterdir()) == []


def test_a_tilde_is_an_ordinary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("~", QUIET) as store:
        assert store.path == str(tmp_path / "~")


def test_dots_and_trailing_slashes_name_the_same_directory(
    here_and_there: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = here_and_there
    with open_store("./data/", QUIET) as store:
        assert store.path == str(here / "data")
    monkeypatch.chdir(here / "data")
    with open_store(".", QUIET) as store:
        assert store.path == str(here / "data")
    with open_store(Path("../data"), QUIET) as store:
        assert Path(store.path).samefile(here / "data")
