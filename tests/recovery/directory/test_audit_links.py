"""A store's `audit.links` may contain anything: an audit removes what audits made, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import small_stores
from store_internals import leave_links

from recovery.audit.snapshot import live_store
from recovery.directory import audit_links
from recovery.directory.layout import Layout
from storage.disk import filenames
from storage.disk.posix import PosixDirectory, lock_at

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OURS = "audit-0123456789abcdef"


def valuable(directory: Path) -> Path:
    """A directory outside the store, with files that have the names of a store's."""
    directory.mkdir()
    for name in ("0.log", "1.txn", "letters", filenames.LOCK):
        (directory / name).write_text("worth keeping: longer than a process id")
    return directory


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def findings(root: Path, into: Path) -> list[str]:
    """Return the names in the store that a snapshot of it calls foreign."""
    into.mkdir(exist_ok=True)
    with live_store.take_snapshot(Layout(PosixDirectory(root)), into) as held:
        return [one.name for one in held.untouched_files]


def stale(root: Path) -> Path:
    """The links of an audit that was killed."""
    made = audit_links.make_links(str(root))
    made.hold(str(root / "ledgers/current"), ["0.log"])
    leave_links(made)
    (one,) = (root / filenames.AUDIT_LINKS).iterdir()
    return one


def test_a_symbolic_link_among_the_links_is_not_followed(tmp_path: Path) -> None:
    root, victim = small_stores.make(tmp_path / "store"), valuable(tmp_path / "victim")
    before = contents(victim)
    parent = root / filenames.AUDIT_LINKS
    parent.mkdir()
    for name in ("x", OURS):
        (parent / name).symlink_to(victim, target_is_directory=True)
    left = findings(root, tmp_path / "copy")
    assert contents(victim) == before
    assert left == [f"audit.links/{OURS}", "audit.links/x"]
    assert sorted(path.name for path in parent.iterdir()) == [OURS, "x"]


def test_a_symbolic_link_in_place_of_the_links_directory_is_not_followed(tmp_path: Path) -> None:
    root, victim = small_stores.make(tmp_path / "store"), tmp_path / "victims"
    inside = valuable_inside(victim)
    before = contents(inside)
    (root / filenames.AUDIT_LINKS).symlink_to(victim, target_is_directory=True)
    left = findings(root, tmp_path / "copy")
    assert contents(inside) == before
    assert left == ["audit.links"]


def valuable_inside(parent: Path) -> Path:
    parent.mkdir()
    return valuable(parent / OURS)


def test_symbolic_links_in_the_directory_of_a_killed_audit_are_left_and_not_followed(tmp_path: Path) -> None:
    root, victim = small_stores.make(tmp_path / "store"), valuable(tmp_path / "victim")
    before = contents(victim)
    one = stale(root)
    (one / filenames.LOCK).unlink()
    (one / filenames.LOCK).symlink_to(victim / filenames.LOCK)
    (one / "5.log").symlink_to(victim / "0.log")
    (one / "deeper").symlink_to(victim, target_is_directory=True)
    findings(root, tmp_path / "copy")
    assert contents(victim) == before
    (one / filenames.LOCK).unlink()
    left = findings(root, tmp_path / "copy")
    assert contents(victim) == before
    assert left == [f"audit.links/{one.name}/5.log", f"audit.links/{one.name}/deeper"]
    assert sorted(path.name for path in one.iterdir()) == ["5.log", "deeper"]


def test_a_directory_exchanged_for_a_symbolic_link_while_it_is_removed_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, victim = small_stores.make(tmp_path / "store"), valuable(tmp_path / "victim")
    before = contents(victim)
    one = stale(root)

    def exchanged(directory: int, name: str) -> object:
        one.rename(tmp_path / "moved")
        one.symlink_to(victim, target_is_directory=True)
        return lock_at(directory, name)

    monkeypatch.setattr(audit_links, "lock_at", exchanged)
    audit_links.remove_stale(str(root))
    assert contents(victim) == before
    assert list((tmp_path / "moved").iterdir()) == []


def test_names_that_no_audit_makes_are_left_and_reported(tmp_path: Path) -> None:
    root = small_stores.make(tmp_path / "store")
    one = stale(root)
    parent = one.parent
    (one / "notes.txt").write_text("mine")
    valuable(parent / "0123456789abcdef")
    (parent / "1.log").write_text("mine")
    left = findings(root, tmp_path / "copy")
    assert left == [
        "audit.links/0123456789abcdef",
        "audit.links/1.log",
        f"audit.links/{one.name}/notes.txt",
    ]
    assert len(contents(parent / "0123456789abcdef")) == 4
    assert contents(one) == {"notes.txt": "mine"}
    assert findings(root, tmp_path / "copy") == left


def test_the_links_of_another_user_are_left_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small_stores.make(tmp_path / "store")
    one = stale(root)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert findings(root, tmp_path / "copy") == [f"audit.links/{one.name}"]
    assert (one / "0.log").exists()


def test_a_journal_that_is_a_symbolic_link_is_not_linked(tmp_path: Path) -> None:
    root, victim = small_stores.make(tmp_path / "store"), valuable(tmp_path / "victim")
    (root / "ledgers/current/7.log").symlink_to(victim / "0.log")
    made = audit_links.make_links(str(root))
    made.hold(str(root / "ledgers/current"), ["0.log", "7.log"])
    assert list(made.paths()) == ["0.log"]
    made.close()
    assert not (root / filenames.AUDIT_LINKS).exists()
