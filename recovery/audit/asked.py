"""What an audit is asked to look at, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.audit.local import Serial
from recovery.audit.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.audit.ensembles import Replicas
    from recovery.audit.task import Engine


def _nowhere(_: Progress) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it has come; `stage` is what it does, for people."""

    stage: str
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Where parts of logs are kept, for an audit that goes on from this one, and from which it goes on."""

    report: Path
    since: Path | None = None
    """An older report: its sound parts stand for logs that are what they were."""
    reread: float = 0.0
    """The share of those that is read again all the same."""
    is_resumed: bool = False
    """Whether this report's own parts are used: its audit was interrupted."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be looked at, and how."""

    paths: tuple[str, ...]
    ways: Ways = field(default_factory=Ways)
    """Passwords; what is declared comes from the stores themselves."""
    engine: Engine = field(default_factory=Serial)
    jobs: int = 1
    """How many tasks the engine runs at once: large files are cut accordingly."""
    replicas: Replicas | None = None
    """Who should hold which entries: its stores are looked at too, and compared."""
    watch: Callable[[Progress], None] = _nowhere
    keep: Keep | None = None
    argv: tuple[str, ...] = ()
