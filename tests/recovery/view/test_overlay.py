"""An overlay shows its own changes, and the directory does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.view.overlay import Overlay
from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def overlay(tmp_path: Path) -> Overlay:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "old").write_bytes(b"as it is")
    return Overlay(PosixDirectory(tmp_path))


def content(overlay: Overlay, name: str) -> bytes:
    with overlay.directory("inner").open(name) as file:
        return file.read(0, file.size())


def test_a_new_file_is_in_the_overlay_and_not_on_disk(overlay: Overlay, tmp_path: Path) -> None:
    inner = overlay.directory("inner")
    with inner.create("new.draft") as file:
        file.write(4, [b"cd", b"ef"])
        file.write(0, [b"ab"])
        file.sync()
    inner.rename("new.draft", "old")
    inner.sync()
    assert inner.names() == ["old"]
    assert content(overlay, "old") == b"ab\0\0cdef"
    assert (tmp_path / "inner" / "old").read_bytes() == b"as it is"
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["old"]


def test_a_removed_file_is_gone_in_the_overlay_only(overlay: Overlay, tmp_path: Path) -> None:
    inner = overlay.directory("inner")
    assert content(overlay, "old") == b"as it is"
    inner.remove("old")
    assert inner.names() == []
    with pytest.raises(FileNotFoundError):
        inner.open("old")
    inner.create("old").write(0, [b"again"])
    assert content(overlay, "old") == b"again"
    assert (tmp_path / "inner" / "old").read_bytes() == b"as it is"


def test_a_file_that_exists_is_not_created_again(overlay: Overlay) -> None:
    with pytest.raises(FileExistsError):
        overlay.directory("inner").create("old")


def test_an_overlay_cannot_be_locked(overlay: Overlay, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Read-only"):
        overlay.lock("LOCK")
    with pytest.raises(OSError, match="Read-only"):
        overlay.directory("other").make()
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
