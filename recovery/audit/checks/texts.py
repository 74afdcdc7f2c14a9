"""The texts of the checks: one query in `checks/sql/` for each, the same for every engine."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def text(name: str) -> str:
    """Return the query of that name, without the comments at its beginning."""
    whole = resources.files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in whole.splitlines() if not line.lstrip().startswith("--"))
