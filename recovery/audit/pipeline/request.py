"""The request for an audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.local import Serial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from recovery.audit.engines.progress import AuditProgress
    from recovery.audit.engines.task import TaskEngine
    from recovery.audit.pipeline.ensemble_file import Replicas
    from recovery.bookkeeper.directories import BookiePart


def _ignore_progress(_: AuditProgress) -> None:
    """Ignore progress: the default callback."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Where parts of logs are kept for a later audit, and from which report this audit continues."""

    report: Path
    since: Path | None = None
    """An older report: its sound parts are used for logs that have not changed."""
    reread: float = 0.0
    """The share of these parts that is read again nevertheless."""
    is_resumed: bool = False
    """Whether parts of this report itself are used, because its audit was interrupted."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Which stores to audit, and how."""

    paths: tuple[str, ...]
    policy: DigestPolicy = field(default_factory=DigestPolicy)
    """Passwords. Declared digest types come from the stores themselves."""
    engine: TaskEngine = field(default_factory=Serial)
    jobs: int = 1
    """How many tasks the engine runs at once. Large files are cut accordingly."""
    replicas: Replicas | None = None
    """Which stores should hold which entries. These stores are audited too, and compared."""
    watch: Callable[[AuditProgress], None] = _ignore_progress
    keep: CacheOptions | None = None
    argv: tuple[str, ...] = ()
    parts: Mapping[str, BookiePart] = field(default_factory=dict)
    """The paths that are parts of bookies with several directories."""
