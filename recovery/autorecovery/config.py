"""The settings of auto-recovery, with BookKeeper's defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Self

from recovery.autorecovery.copying import CopyLimits

if TYPE_CHECKING:
    from storage.cluster.bookie.config import AutoRecoveryOptions

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class AutoRecoveryConfig:
    """The settings of one process."""

    lost_bookie_recovery_delay_s: int = 0
    """Written into the metadata only if they have none: the node wins."""
    open_ledger_grace_s: float = 30.0
    """How long a writer may take to replace a lost bookie before its ledger is recovered."""
    pause_max_s: float = 300.0
    """The longest pause before a ledger that could not be repaired is tried again."""
    audit_interval_s: float = DAY_S
    """How often all ledgers are looked through for bookies that are not registered."""
    check_interval_s: float = 7 * DAY_S
    """How often the fragments of all ledgers are checked; 0 for never."""
    check_percent: int = 0
    """How many of the entries of a fragment this check reads besides the first and the last."""
    entry_check_interval_s: float = 0.0
    """How often every entry of all ledgers is read and its digest verified; 0 for never."""
    repairs_at_once: int = 2
    progress_interval_s: float = 2.0
    """How often a worker publishes what it does, if that has changed."""
    copying: CopyLimits = field(default_factory=CopyLimits)

    @classmethod
    def of_options(cls, options: AutoRecoveryOptions) -> Self:
        """Return the settings that a bookie's options say."""
        given = {name: value for name, value in asdict(options).items() if value is not None}
        copying = CopyLimits(bytes_per_s=given.pop("bytes_per_s", None))
        return cls(**given, copying=copying)
