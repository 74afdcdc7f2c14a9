"""Which paths of znodes ZooKeeper accepts."""

from __future__ import annotations

import re

_VALID = re.compile(
    # Each name after a slash, except `.` and `..`, of characters that are neither control characters nor
    # surrogates, of the private use area or of the specials. ZooKeeper looks at UTF-16, in which a character
    # above U+FFFF is two surrogates.
    r"(?:/(?!\.\.?(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]+)+"
)


def is_valid(path: str) -> bool:
    """Return whether a node may have the path."""
    return path == "/" or _VALID.fullmatch(path) is not None


def parent_of(path: str) -> str:
    """Return the path of the node above."""
    return path[: path.rfind("/")] or "/"
