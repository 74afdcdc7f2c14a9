"""Paths as users write them: plain ones, `file:` URIs, and patterns such as `/data/bookie*`."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_URI = re.compile(r"file:(?=/)", re.IGNORECASE)
_LOCAL_HOSTS = ("", "localhost")


class NotLocal(ValueError):
    """The files are not in a file system of this machine."""


def local_paths(text: str) -> list[str]:
    """Return the paths that the text stands for: one, or all that match a pattern, sorted.

    A path that exists is never taken for a pattern. A pattern without a match is returned as it is, so that
    the error of the caller names it. Raise `NotLocal` for a URI of anything but a local file.
    """
    if Path(text).exists():
        return [text]
    path = _of_file_uri(text) if _FILE_URI.match(text) else text
    if path is text and _URI.match(text):
        words = "only files of a file system can be read: copy them to one, or mount them, and give that path"
        raise NotLocal(f"{text}: {words}")
    if Path(path).exists() or not glob.has_magic(path):
        return [path]
    return sorted(glob.glob(path)) or [path]  # noqa: PTH207 - Path.glob takes no absolute pattern


def _of_file_uri(text: str) -> str:
    parts = urlsplit(text)
    if parts.netloc.lower() not in _LOCAL_HOSTS:
        raise NotLocal(f"{text}: the file is on another machine, {parts.netloc}")
    return unquote(parts.path, errors="surrogateescape")
