"""Generate the API reference of `ledgerstore` from its docstrings, as static HTML pages.

python docs/build_reference.py .docs
"""

from __future__ import annotations

import sys
from pathlib import Path

import pdoc

import ledgerstore

WITHOUT_CONSTRUCTOR = (
    "Store",
    "Ledger",
    "Follower",
    "AsyncStore",
    "AsyncLedger",
    "AsyncFollower",
    "View",
    "ViewLedger",
    "Bookie",
)
"""Classes that a program gets from `open` and from methods, so that their constructors are not for users."""

VIEW_MEMBERS = {"path", "findings", "refresh", "close", "ledger", "ledgers", "exists"}
"""The methods of a view that are for users. The others serve the commands and may change in any release."""

PRIVATE = "@private"
"""The docstring by which pdoc leaves a member out of the reference."""


def build(directory: Path) -> None:
    """Write `ledgerstore.html`, an index page and the search data into the directory."""
    for name in ledgerstore.__all__:
        value = getattr(ledgerstore, name)  # pdoc sees only names that are loaded
        if isinstance(value, type):
            value.__module__ = "ledgerstore"  # so that signatures name, and link, the public name
    for name in WITHOUT_CONSTRUCTOR:
        constructor = vars(getattr(ledgerstore, name)).get("__init__")
        if constructor is not None:
            constructor.__doc__ = PRIVATE
    for name, member in vars(ledgerstore.View).items():
        if not name.startswith("_") and name not in VIEW_MEMBERS:
            member.__doc__ = PRIVATE
    pdoc.render.configure(show_source=False, footer_text=f"ledgerstore {ledgerstore.__version__}")
    pdoc.pdoc("ledgerstore", output_directory=directory)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
