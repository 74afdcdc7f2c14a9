"""Copying an index takes the same memory for any size."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from recovery.audit.snapshot import index_copy
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.read_result import Damaged
from storage.index.lmdb import page_checksums
from storage.index.lmdb.directory import LmdbIndexDirectory, open_copy
from storage.index.lmdb.index import LmdbIndex
from storage.index.lmdb.leaves import DATA
from storage.index.state import IndexState

if TYPE_CHECKING:
    from pathlib import Path

    from storage.index.lmdb.page_checksums import CurrentMeta

_ENTRIES = 1_000_000
_GROWTH_MAX_KIB = 6 << 10

_COPY = """
import re, sys
from pathlib import Path
from recovery.audit.snapshot import index_copy

def most_held():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = most_held()
assert index_copy.copy(Path(sys.argv[1]), Path(sys.argv[2]))
print(most_held() - before)
"""


def _index(root: Path) -> Path:
    root.mkdir()
    draft = LmdbIndexDirectory(PosixDirectory(root), root).draft()
    with draft.change() as change:
        change.put(1, range(_ENTRIES), range(1028, 1028 + 40 * _ENTRIES, 40))
        change.commit(IndexState())
    draft.publish().close()
    return root / filenames.INDEX


@pytest.mark.slow
def test_copied_pages_do_not_stay_in_memory(tmp_path: Path) -> None:
    index, into = _index(tmp_path / "ledgers"), tmp_path / "copy"
    assert (index / DATA).stat().st_size > 2 * _GROWTH_MAX_KIB << 10
    into.mkdir()
    command = [sys.executable, "-c", _COPY, str(index), str(into)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < _GROWTH_MAX_KIB
    copied = open_copy(into)
    assert isinstance(copied, LmdbIndex)
    with closing(copied):
        assert copied.count(1) == _ENTRIES
        assert copied.last(1) == (_ENTRIES - 1, 1028 + 40 * (_ENTRIES - 1))


def test_a_mix_of_two_commits_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, into = _index(tmp_path / "ledgers"), tmp_path / "copy"
    into.mkdir()
    heads = iter(range(10))
    read_head = page_checksums.read_current_meta
    # No process has the index locked, and its file is now of another transaction than the copy.
    monkeypatch.setattr(index_copy, "_page_size", lambda data: _known(read_head(data)).meta.page_size)
    monkeypatch.setattr(page_checksums, "read_current_meta", lambda _: next(heads))
    assert not index_copy.copy(index, into)


def _known(head: CurrentMeta | Damaged) -> CurrentMeta:
    assert not isinstance(head, Damaged)
    return head
