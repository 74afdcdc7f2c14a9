"""The date of a run, and the commit that was measured."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

_DIRTY = "-dirty"
_TIMEOUT_S = 10


def provenance() -> dict[str, str]:
    """Return the date, and the commit if there is one."""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "commit": commit(Path(__file__).parent)}


def commit(directory: Path) -> str:
    """Return the checked out commit, and whether files differ from it. Empty without git."""
    # Without optional locks git writes nothing, so that a commit in another process is not disturbed.
    describe = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            describe, cwd=directory, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = done.stdout.strip()
    return f"{found.removesuffix(_DIRTY)} and changes" if found.endswith(_DIRTY) else found
