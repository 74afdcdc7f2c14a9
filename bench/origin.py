"""When a run was made, and of which state of the code."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

_DIRTY = "-dirty"
_PATIENCE_S = 10


def origin() -> dict[str, str]:
    """The date, and the commit where there is one."""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "commit": commit(Path(__file__).parent)}


def commit(directory: Path) -> str:
    """The commit that is checked out there, and whether files were changed since; nothing without git."""
    # Without optional locks nothing is written: whoever commits at this moment is not disturbed.
    describe = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        said = subprocess.run(  # noqa: S603 - our own words
            describe, cwd=directory, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = said.stdout.strip()
    return f"{found.removesuffix(_DIRTY)} and changes" if found.endswith(_DIRTY) else found
