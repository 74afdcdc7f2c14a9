"""Copying an index takes no memory, however large it is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from recovery.audit import index_copy
from storage import filenames, page_sums
from storage.index_state import IndexState
from storage.lmdb_index import LmdbIndex
from storage.lmdb_leaves import DATA
from storage.lmdb_place import LmdbPlace, open_copy
from storage.outcome import Damaged
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from storage.page_sums import Head

_ENTRIES = 1_000_000
_GROWTH_MAX_KIB = 6 << 10

_COPY = """
import re, sys
from pathlib import Path
from recovery.audit import index_copy

def most_held():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = most_held()
assert index_copy.copy(Path(sys.argv[1]), Path(sys.argv[2]))
print(most_held() - before)
"""


def _index(root: Path) -> Path:
    root.mkdir()
    draft = LmdbPlace(PosixDirectory(root), root).draft()
    with draft.change() as change:
        change.put(1, range(_ENTRIES), range(1028, 1028 + 40 * _ENTRIES, 40))
        change.commit(IndexState())
    draft.publish().close()
    return root / filenames.INDEX


def test_what_is_copied_does_not_stay_in_memory(tmp_path: Path) -> None:
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


def test_of_two_commits_no_copy_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, into = _index(tmp_path / "ledgers"), tmp_path / "copy"
    into.mkdir()
    heads = iter(range(10))
    read_head = page_sums.read_head
    # Nobody has it locked, and what counts in the file is another transaction than what was copied.
    monkeypatch.setattr(index_copy, "_page_size", lambda data: _known(read_head(data)).meta.page_size)
    monkeypatch.setattr(page_sums, "read_head", lambda _: next(heads))
    assert not index_copy.copy(index, into)


def _known(head: Head | Damaged) -> Head:
    assert not isinstance(head, Damaged)
    return head
