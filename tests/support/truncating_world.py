"""A world whose ledgers are also truncated, beside a store that reclaims space: the workload `truncation`.

A truncation comes between any two steps of checkpoints, moves and removals. The world has a class of its own,
so that the histories of the other workloads stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collecting_world import CollectingWorld
from simulated_store import DELETED, LEDGERS, REPLICA
from store_internals import StoreInternals
from store_promises import ledger_of

from storage.errors import NoSuchLedger, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from simulated_store import Trouble

    from recovery.crashlab import Fault
    from storage.gc.compactor import Compactor, Moved


class TruncatingWorld(CollectingWorld):
    """The history of one seed, with truncations."""

    def __init__(self, seed: int, trouble: Trouble, fault: Fault | None = None) -> None:
        super().__init__(seed, trouble, fault)
        self.truncated = 0

    def _more_choices(self) -> list[tuple[Callable[[], None], int]]:
        choices = super()._more_choices()
        # A truncation leads a commit, and would wait for the one that is played.
        if (
            self._playing is None
            and self._deleting is None
            and not StoreInternals(self.store).waiting_deletes
        ):
            choices.append((self._truncate, 25))
        return choices

    def _begin_move(self) -> None:
        """Move out of any log. The one in use is ended first."""
        logs = StoreInternals(self.store).log_ids
        if logs:
            log_id = self._dice.choice(logs)
            compactor = StoreInternals(self.store).compactor
            self._verb = compactor.move(log_id) if log_id != logs[-1] else _rolled(compactor, log_id)

    def _truncate(self) -> None:
        """Truncate a ledger to some of its entries, or to none."""
        ledger_id = self._dice.choice([*LEDGERS, *DELETED, REPLICA])
        if ledger_id in self.promises.going:
            return  # it may be another ledger by the time of the call
        with self._refusals(ledger_id):
            ledger = ledger_of(self.store, ledger_id)
            try:
                last = ledger.last_entry_id
            except (StoreError, OSError):
                return
            if last is None:
                return
            before = max(0, last + 1 - self._dice.choice([0, 0, 1, 2, 5]))
            self.promises.truncate(ledger_id, before)
            try:
                ledger.truncate(before)
            except NoSuchLedger as error:
                raise self._broken(f"ledger {ledger_id} ends with {last}, and is missing") from error
            except (StoreError, OSError):
                return  # a crash may truncate it nevertheless
            self.promises.truncated(ledger_id, before)
            self.truncated += 1


def _rolled(compactor: Compactor, log_id: int) -> Generator[Any, None, Moved]:
    yield from compactor.roll()
    return (yield from compactor.move(log_id))
