"""Runs a state machine over a client of the cluster until it has a result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from storage.cluster.client.driver import MachineDriver, refuse, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.autorecovery.check import FragmentFinding, LedgerCheck
    from recovery.autorecovery.repair import LedgerRepair, RepairResult
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import (
        BookieAnswer,
        Effect,
        MetadataRead,
        MetadataWritten,
        Sending,
        Token,
    )


class _Machine(Protocol):
    """A machine that ends with a result."""

    @property
    def result(self) -> Any: ...
    def begin(self) -> Sequence[Effect]: ...
    def answered(self, token: Token, answer: BookieAnswer) -> Sequence[Effect]: ...


async def run_repair(cluster: AsyncCluster, ledger_id: int, repair: LedgerRepair) -> RepairResult:
    """Run a repair to its result. If the caller is cancelled, the repair begins nothing more."""
    await _run(cluster, ledger_id, repair)
    assert repair.result is not None, "it is over"
    return repair.result


async def run_check(cluster: AsyncCluster, ledger_id: int, check: LedgerCheck) -> list[FragmentFinding]:
    """Run a check to its result: the fragments that are not whole."""
    await _run(cluster, ledger_id, check)
    assert check.result is not None, "it is over"
    return check.result


async def _run(cluster: AsyncCluster, ledger_id: int, machine: _Machine) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stoppable = _Stoppable(machine, done)
    driver = MachineDriver(cluster, ledger_id, stoppable)
    try:
        driver.perform(stoppable.guarded(machine.begin))
        await done
    finally:
        stoppable.is_stopped = True
        driver.stop()


class _Stoppable:
    """Passes events to a machine until it has ended, was stopped, or has raised."""

    def __init__(self, machine: Any, done: asyncio.Future[None]) -> None:
        self._machine = machine
        self._done = done
        self.is_stopped = False

    def guarded(self, event: Callable[..., Sequence[Effect]], *arguments: object) -> list[Effect]:
        if self.is_stopped:
            return []
        try:
            effects = [*event(*arguments)]
        except Exception as error:
            # An event comes from a callback of the loop, where the error would only be logged. The repair
            # would never end then, and its ledger would stay locked.
            self.is_stopped = True
            refuse(self._done, error)
            return []
        if self._machine.result is not None:
            settle(self._done, None)
        return effects

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        return self.guarded(self._machine.answered, token, answer)

    def added(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> list[Effect]:
        # A repair sends each copy by itself, and asks for no adds that are sent together.
        raise AssertionError(sending, entry_ids, answer)

    def metadata_written(self, answer: MetadataWritten) -> list[Effect]:
        return self.guarded(self._machine.metadata_written, answer)

    def metadata_read(self, answer: MetadataRead) -> list[Effect]:
        return self.guarded(self._machine.metadata_read, answer)

    def waited(self) -> list[Effect]:
        return self.guarded(self._machine.waited)
