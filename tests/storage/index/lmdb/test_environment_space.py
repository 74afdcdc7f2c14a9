"""The files that LMDB maps have no holes, because on a full disk a write to a hole kills the process."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from storage.disk import posix
from storage.index.lmdb.environment import make_environment, open_environment

if TYPE_CHECKING:
    from pathlib import Path


def lock_of(path: Path) -> os.stat_result:
    return (path / "lock.mdb").stat()


def test_the_table_of_readers_has_all_its_blocks_in_a_new_and_in_an_old_index(tmp_path: Path) -> None:
    make_environment(tmp_path, 1 << 20).close()
    new = lock_of(tmp_path)
    assert new.st_blocks * 512 >= new.st_size > 0
    # As an earlier version left it, or a power cut.
    os.truncate(tmp_path / "lock.mdb", 0)
    os.truncate(tmp_path / "lock.mdb", new.st_size)
    assert lock_of(tmp_path).st_blocks == 0
    environment = open_environment(tmp_path, 1 << 20)
    assert lock_of(tmp_path).st_blocks * 512 >= lock_of(tmp_path).st_size == new.st_size
    environment.close()  # type: ignore[union-attr]


def test_lmdb_makes_no_larger_table_of_readers(tmp_path: Path) -> None:
    posix.allocate(tmp_path / "lock.mdb", 1)
    make_environment(tmp_path, 1 << 20).close()
    plain = tmp_path / "plain"
    plain.mkdir()
    make_environment(plain, 1 << 20).close()
    assert lock_of(tmp_path).st_size == lock_of(plain).st_size


def test_a_file_without_holes_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    os.sync()
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    posix.allocate(path, 8192)


def test_a_full_disk_is_an_error_and_the_content_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(OSError, match="No space left"):
            posix.allocate(path, 1 << 20)
    posix.allocate(path, 1 << 20)
    assert (path.stat().st_size, path.read_bytes()[:8]) == (1 << 20, b"content\0")
