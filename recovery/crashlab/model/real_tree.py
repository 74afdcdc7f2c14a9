"""Real directories: create one from a platter, compare one with a platter, compute a digest."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from recovery.crashlab.model.platter import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.crashlab.model.platter import Platter

Tree = dict[str, bytes]
"""The content of files by their relative paths; the path of an empty directory ends with a slash."""


class IgnoredPaths:
    """Paths that do not matter: lock files, shared memory, files that are recreated at every start."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = tuple(patterns)
        self._known: dict[str, bool] = {}

    def __contains__(self, path: str) -> bool:
        if path not in self._known:
            last = path.rpartition("/")[2]
            self._known[path] = any(
                fnmatchcase(path, one) or fnmatchcase(last, one) for one in self._patterns
            )
        return self._known[path]


def lay_out(platter: Platter, root: Path) -> dict[int, int]:
    """Create a real directory from what reads of the platter see; return the node of each inode."""
    made: dict[int, Path] = {ROOT: root}
    for path, node in platter.seen():
        whole = Path(f"{root}{path}")
        if node in platter.directories:
            whole.mkdir()
        elif node in made:
            whole.hardlink_to(made[node])
        else:
            content = platter.files[node]
            whole.write_bytes(content.read(0, content.size))
        made[node] = whole
    return {path.stat().st_ino: node for node, path in made.items()}


def differences(platter: Platter, root: Path, ignored: IgnoredPaths) -> dict[str, str]:
    """Return where a real directory differs from the platter, because the recorder missed calls."""
    expected = {path[1:]: node for path, node in platter.seen()}
    found: dict[str, str] = {}
    for path in _directories(root):
        if expected.pop(path, None) not in platter.directories and path not in ignored:
            found[path] = "the recorder has not seen it made"
    for path, data in _contents(root, ignored):
        content = platter.files.get(expected.pop(path, ROOT))
        if content is None:
            found[path] = "the recorder has not seen it made"
        elif data != content.read(0, content.size):
            found[path] = "its bytes are not those of the recorded writes"
    gone = {path: "the recorder has not seen it removed" for path in expected if path not in ignored}
    return found | gone


def read_tree(root: Path, ignored: IgnoredPaths) -> Tree:
    """Read a directory, except ignored paths."""
    tree = dict(_contents(root, ignored))
    full = {str(parent) for path in tree for parent in PurePath(path).parents}
    for path in _directories(root):  # also keep a directory in which only ignored files are
        if path not in full and path not in ignored:
            tree[f"{path}/"] = b""
            full |= {str(parent) for parent in PurePath(path).parents}
    return tree


def write_tree(tree: Mapping[str, bytes], root: Path) -> None:
    """Write a directory from a tree."""
    for path, data in tree.items():
        whole = root / path
        if path.endswith("/"):
            whole.mkdir(parents=True, exist_ok=True)
        else:
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_bytes(data)


def visible_tree(platter: Platter) -> Tree:
    """Return the tree that reads of a platter see."""
    tree: Tree = {}
    for path, node in platter.seen():
        if node in platter.files:
            tree[path[1:]] = platter.files[node].read(0, platter.files[node].size)
        elif not platter.directories[node].seen:
            tree[f"{path[1:]}/"] = b""
    return tree


def digest(tree: Mapping[str, bytes]) -> str:
    """Return a digest of all names and bytes."""
    hasher = blake2b(digest_size=16)
    for path in sorted(tree):
        name = os.fsencode(path)
        hasher.update(b"%d %s %d " % (len(name), name, len(tree[path])))
        hasher.update(tree[path])
    return hasher.hexdigest()


def _contents(root: Path, ignored: IgnoredPaths) -> Iterator[tuple[str, bytes]]:
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(files):
            path = os.path.relpath(f"{directory}/{name}", root)
            whole = Path(root, path)
            if path not in ignored and whole.is_file():  # skip pipes, sockets and dangling links
                yield path, whole.read_bytes()


def _directories(root: Path) -> Iterator[str]:
    """Yield all directories below the root, inner ones first."""
    for directory, _, _ in os.walk(root, topdown=False):
        if directory != str(root):
            yield os.path.relpath(directory, root)
