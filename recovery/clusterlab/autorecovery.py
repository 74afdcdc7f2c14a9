"""Schedules of a cluster that is repaired while bookies are lost, wiped and damaged, and come back.

Bookies crash, lose their registration, turn read-only or full, lose their disk, or have a bad entry.
Processes of auto-recovery are killed and paused, and lose their sessions. Administrators disable and enable
it, ask for audits, decommission a bookie, and delete ledgers. Then everything is mended. After some quiet no
mark, no lock and no name of a lost bookie may be left, and after a check of all entries every copy is good.
At last the bookies have the time to delete the copies that are not needed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from recovery.autorecovery import audits, decommission
from recovery.clusterlab.clients import RecovererClient
from recovery.clusterlab.collection import COLLECTED_UNITS
from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.recovery_hosts import PATHS, ROOT
from recovery.clusterlab.repaired_cluster import RepairedCluster
from recovery.clusterlab.tree_session import children_at
from recovery.clusterlab.world import EventKind
from storage.cluster.client.writer import WriterState
from storage.cluster.errors import MetadataUnavailable, ReplicationStateUnchanged
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.underreplication import base_path, marks_path
from storage.cluster.metadata.znodes import ChildNames

if TYPE_CHECKING:
    from recovery.clusterlab.clients import ClientProcess
    from recovery.clusterlab.recovery_hosts import Host
    from recovery.clusterlab.repair_oracles import LedgerOracles
    from recovery.clusterlab.repaired_cluster import RegisteredBookie, WrittenLedger
    from recovery.clusterlab.znodes import ZnodeSession
    from storage.cluster.client.cluster import AsyncCluster

_ELECTED = 100
"""The time of the first fault. An auditor is elected by then."""

_FAULTS = 400
"""Faults happen for this time."""

_MENDED = 1_300.0
"""The time after which nothing goes wrong."""

_DISABLED = (50.0, 300.0, 900.0)
"""How long auto-recovery is disabled."""

_LOOK = 40.0
_QUIET_MAX = 30_000.0
"""The time that the cluster has to become whole after everything was mended."""


class AutoRecoverySchedule(RepairedCluster):
    """One schedule, as far as it has been played."""

    def _set_up(self) -> None:
        super()._set_up()
        pick = self._choices.pick
        self._victim_number = pick(len(self._names))
        self._is_checked = False
        # Most faults matter only while something has to be repaired.
        self.world.after(_ELECTED + pick(_FAULTS // 2), self._lose_some)
        for _ in range(1 + pick(6)):
            self.world.after(_ELECTED + pick(_FAULTS), self._go_wrong)
        self.world.after(_MENDED, self._mend)

    # ── what goes wrong ───────────────────────────────────────────────────────────────────────────────

    def _go_wrong(self) -> None:
        """Let one of the faults happen, which are as likely as they are often in this list."""
        faults = (
            *(self._crash_some, self._crash_some, self._crash_some, self._wipe, self._wipe, self._lose_disk),
            *(self._damage, self._cut, self._pause, self._expire_sessions, self._expire_sessions),
            *(self._kill, self._withdraw, self._change_mode, self._disable, self._disturb_client),
            *(self._delete, self._trigger, self._disturb_collector),
        )
        faults[self._choices.pick(len(faults))]()

    def _some_bookie(self) -> RegisteredBookie:
        return self._bookies[self._names[self._choices.pick(len(self._names))]]

    def _some_host(self) -> Host:
        return self._hosts[self._choices.pick(len(self._hosts))]

    def _some_ledger(self) -> WrittenLedger:
        return self._ledgers[self._choices.pick(len(self._ledgers))]

    def _lasts(self) -> float:
        return (10.0, 150.0, 400.0)[self._choices.pick(3)] + self._choices.pick(150)

    # ── bookies ───────────────────────────────────────────────────────────────────────────────────────

    def _lose_some(self) -> None:
        (self._crash_some, self._withdraw, self._wipe, self._lose_disk)[self._choices.pick(4)]()

    def _crash_some(self) -> None:
        self._crash(self._some_bookie())

    def _crash(self, bookie: RegisteredBookie) -> None:
        """Crash a bookie. It stays registered for the time-out of its session."""
        if bookie.is_up:
            self._network.crash(bookie.name)
            if bookie.name in self._collectors:
                self._collectors[bookie.name].kill()
            self.world.after(20 + self._choices.pick(40), self._expire, bookie, bookie.session_id)
            self.world.after(self._lasts(), self._restart_bookie, bookie)

    def _withdraw(self) -> None:
        """Let a bookie lose its session for a while. It serves all the time."""
        bookie = self._some_bookie()
        self.world.note(EventKind.FAULT, bookie.name, "loses its registration")
        self._unregister(bookie)
        self.world.after(self._lasts(), self._register_again, bookie)

    def _register_again(self, bookie: RegisteredBookie) -> None:
        if bookie.is_up and not bookie.is_lost:
            self._register_bookie(bookie)

    @property
    def _victim(self) -> RegisteredBookie:
        """The bookie whose disk may be lost. With a second one a last copy could be lost."""
        return self._bookies[self._names[self._victim_number]]

    def _wipe(self) -> None:
        """Let a bookie lose its disk, and come back empty with a new cookie."""
        bookie = self._victim
        if bookie.is_up and self._may_lose(bookie):
            self._crash(bookie)
            self._destroy(bookie)

    def _lose_disk(self) -> None:
        """Let a bookie be lost for good, if there are enough others, and be decommissioned perhaps."""
        bookie = self._victim
        enough = len(self._names) > self._quorums.ensemble
        if bookie.is_up and enough and self._may_lose(bookie):
            bookie.is_lost = True
            self._crash(bookie)
            self._destroy(bookie)
            if self._choices.pick(2):
                self.world.after(100.0 + self._lasts(), self._decommission, bookie)

    def _may_lose(self, bookie: RegisteredBookie) -> bool:
        """Return whether no entry is lost with the disk of this bookie, and no fence that counts.

        A bookie without its disk breaks the promise of its fences, so it may have no part in the end of a
        ledger that is not closed. While a ledger is locked its copies may be on the way to this bookie.
        """
        locks = children_at(self.ensemble.tree, f"{base_path(ROOT)}/locks")
        if isinstance(locks, ChildNames) and locks.names:
            return False
        for ledger in self.oracles_of_all.living:
            metadata = ledger.metadata
            if not metadata.is_closed and (
                bookie.name in metadata.segments[-1].bookies or not _is_open(ledger)
            ):
                return False
            if any(not ledger.good_copies(one) - {bookie.name} for one in range(ledger.count)):
                return False
        return True

    def _destroy(self, bookie: RegisteredBookie) -> None:
        self.world.note(EventKind.FAULT, bookie.name, "loses its disk")
        for ledger_id, kept in bookie.ledgers.items():
            for entry_id in kept.entries:
                self.oracles_of_all.ledgers[ledger_id].destroy(bookie.name, entry_id)
        bookie.ledgers.clear()

    def _damage(self) -> None:
        """Destroy one copy of an entry of a closed ledger that has another one."""
        bookie, oracles = self._victim, self._some_ledger().oracles
        if oracles.is_deleted or not oracles.metadata.is_closed or not oracles.count:
            return
        entry_id = self._choices.pick(oracles.count)
        locks = children_at(self.ensemble.tree, f"{base_path(ROOT)}/locks")
        is_locked = isinstance(locks, ChildNames) and bool(locks.names)
        if is_locked or not oracles.good_copies(entry_id) - {bookie.name}:
            return
        kept = bookie.ledgers.get(oracles.ledger_id)
        if kept is None or entry_id not in kept.entries:
            return
        oracles.destroy(bookie.name, entry_id)
        if self._choices.pick(2):
            kept.entries[entry_id] = kept.entries[entry_id][:-1] + b"!"
            self.world.note(EventKind.FAULT, bookie.name, f"has a bad entry {entry_id}")
        else:
            del kept.entries[entry_id]
            self.world.note(EventKind.FAULT, bookie.name, f"loses entry {entry_id}")

    def _change_mode(self) -> None:
        """Let a bookie take no adds for a while: as a read-only one, or without saying so."""
        bookie = self._some_bookie()
        if not (bookie.is_up and bookie.session_id):
            return
        if self._choices.pick(2):
            bookie.is_full = True
            self.world.note(EventKind.FAULT, bookie.name, "is full")
        else:
            bookie.is_read_only = True
            self.world.note(EventKind.FAULT, bookie.name, "is read-only")
            # The new node is there before the old one goes.
            old, bookie.session_id = bookie.session_id, 0
            self._register_bookie(bookie)
            self.ensemble.end_session(old)
        self.world.after(self._lasts(), self._restore_mode, bookie)

    def _restore_mode(self, bookie: RegisteredBookie) -> None:
        bookie.is_full = False
        if bookie.is_read_only:
            bookie.is_read_only = False
            if bookie.session_id and bookie.is_up:
                old, bookie.session_id = bookie.session_id, 0
                self._register_bookie(bookie)
                self.ensemble.end_session(old)

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────

    def _cut(self) -> None:
        """Cut a link from auto-recovery to a bookie for a while."""
        host, bookie = self._some_host(), self._some_bookie()
        self._network.cut(host.name, bookie.name)
        self.world.after(self._lasts(), self._network.mend, host.name, bookie.name)

    def _pause(self) -> None:
        process = self._some_host().process
        process.paused_until = self.world.now + self._lasts()
        self.oracles_of_all.paused(process.name, process.paused_until)
        self.world.note(EventKind.FAULT, process.name, f"is paused until {process.paused_until:.0f}")

    def _expire_sessions(self) -> None:
        """Let the sessions of a process expire, of which it learns later."""
        for session in self._some_host().sessions:
            session.expire(self._choices.pick(120))

    def _disturb_collector(self) -> None:
        """Let the session of a process that deletes copies expire, which may be paused and not notice."""
        collector = self._collectors.get(self._some_bookie().name)
        if collector is None:
            return
        told_after = float(self._choices.pick(120))
        if self._choices.pick(2):
            collector.process.paused_until = self.world.now + self._lasts()
            self.world.note(EventKind.FAULT, collector.name, "is paused")
        for session in collector.sessions:
            session.expire(told_after)

    def _kill(self) -> None:
        host = self._some_host()
        host.kill()
        self.world.after(self._lasts(), self._start_host, host)

    def _trigger(self) -> None:
        self._command("trigger", _trigger)

    def _disable(self) -> None:
        self.world.note(EventKind.FAULT, "admin", "disables auto-recovery")
        self._command("disabler", _disable)
        self.world.after(_DISABLED[self._choices.pick(3)], self._enable)

    def _enable(self) -> None:
        self._command("enabler", _enable)

    def _disturb_client(self) -> None:
        """Kill or pause a writer, let its session expire, or let another client take its ledger over."""
        ledger = self._some_ledger()
        writer = ledger.writer
        if writer is None or ledger.oracles.is_deleted:
            return
        match self._choices.pick(4):
            case 0:
                writer.is_alive = False
                self.world.note(EventKind.FAULT, writer.name, "is killed")
            case 1:
                writer.paused_until = self.world.now + self._lasts()
                self.world.note(EventKind.FAULT, writer.name, f"is paused until {writer.paused_until:.0f}")
            case 2:
                ledger.node.session_of(writer).expire(0.0)
            case _:
                self._take_over(ledger, 1 + self._choices.pick(3))

    def _take_over(self, ledger: WrittenLedger, attempts: int) -> None:
        oracles = ledger.oracles
        name = f"recoverer{oracles.ledger_id}.{len(ledger.recoverers)}"
        client = RecovererClient(name, self.world, self._network, ledger.node, oracles)
        ledger.recoverers.append(client)
        client.start(oracles.codec, self._candidates, attempts)

    def _delete(self) -> None:
        ledger = self._some_ledger()

        async def delete(session: ZnodeSession, cluster: AsyncCluster) -> None:  # noqa: ARG001
            await cluster.delete(ledger.oracles.ledger_id)

        self._command("deleter", delete)

    def _decommission(self, bookie: RegisteredBookie) -> None:
        async def run(session: ZnodeSession, cluster: AsyncCluster) -> None:  # noqa: ARG001
            await decommission.mark_ledgers_of(session, PATHS, bookie.name, _ignore)
            await decommission.wait_until_empty(session, PATHS, bookie.name, frozenset, _ignore)
            await decommission.remove_cookie(session, PATHS, bookie.name)

        self._command("decommission", run)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _mend(self) -> None:
        """Repair everything but disks, and let the ledgers be closed."""
        self.world.note(EventKind.MENDED, "admin", "everything is mended")
        self._network.mend_all()
        self.ensemble.loss = 0.0
        for bookie in self._bookies.values():
            self._restore_mode(bookie)
            if bookie.is_lost:
                continue
            if not bookie.is_up:
                self._restart_bookie(bookie)
            elif not bookie.session_id:
                self._register_bookie(bookie)
        self._enable()
        for host in self._hosts:
            self._start_host(host)
        for ledger in self._ledgers:
            self._end_writing(ledger)
        self.world.after(_LOOK, self._look)

    def _end_writing(self, ledger: WrittenLedger) -> None:
        writer = ledger.writer
        if writer is None:
            return
        if writer.is_alive and writer.machine.state is WriterState.OPEN and self._choices.pick(2):
            writer.deliver(writer.close)
        self.world.after(200.0, self._take_over_at_last, ledger)

    def _take_over_at_last(self, ledger: WrittenLedger) -> None:
        if not ledger.oracles.is_deleted and not ledger.oracles.metadata.is_closed:
            self._take_over(ledger, 3)

    def _look(self) -> None:
        """Look whether the cluster is whole: after the marks, and again after a check of all entries."""
        if self.world.now > _MENDED + _QUIET_MAX:
            self.stop()
            raise InvariantViolated("O6", f"not whole at the end: {self._what_is_left()}")
        if self._what_is_left():
            self.world.after(_LOOK, self._look)
        elif not self._is_checked:
            self.oracles_of_all.check_names()
            self._command("checker", self._check_all)
            self.world.after(_LOOK, self._look)
        else:
            self.oracles_of_all.check_names()
            self.oracles_of_all.check_whole()
            for host in self._hosts:
                host.stop()
            self.world.after(COLLECTED_UNITS, self._look_at_copies)

    def _look_at_copies(self) -> None:
        """Look whether the bookies have deleted the copies that are not needed."""
        for name in self._collectors:
            bookie = self._bookies[name]
            if bookie.is_up:
                self.oracles_of_all.check_collected(name, bookie.ledgers)
        self.stop()

    def _what_is_left(self) -> str:
        """Return what has to go before the cluster is whole: marks, locks, open ledgers, names, commands."""
        parents = f"{marks_path(ROOT)}/", f"{base_path(ROOT)}/locks/"
        nodes = [path for path in self.ensemble.tree.nodes if path.startswith(parents) and "/urL" in path]
        left = [path.rpartition("/")[2] for path in nodes]
        for ledger in self.oracles_of_all.living:
            if not ledger.metadata.is_closed:
                left.append(f"ledger {ledger.ledger_id} open")
            named = {bookie for segment in ledger.metadata.segments for bookie in segment.bookies}
            left += [f"{one} named" for one in sorted(named) if not self._bookies[one].session_id]
        left += [f"{host.name} runs" for host in self._commands if host.is_running]
        return ", ".join(left)

    async def _check_all(self, session: ZnodeSession, cluster: AsyncCluster) -> None:
        """Check every entry of all ledgers, as an administrator does."""
        while not self._is_checked:
            try:
                result = await audits.check_all(
                    session,
                    PATHS,
                    cluster,
                    100,
                    lambda *_: None,
                    clock=self._hosts[0].clock,
                )
                self._is_checked = result.is_complete
            except MetadataUnavailable:
                pass
            await asyncio.sleep(1.0)

    def _check(self) -> None:
        for ledger in self._ledgers:
            clients: list[ClientProcess] = [*ledger.recoverers]
            if ledger.writer is not None:
                ledger.writer.check_done()
                clients.append(ledger.writer)
            for process in clients:
                if process.is_alive and not process.is_done:
                    raise InvariantViolated("O8", f"{process.name} waits for ever")


async def _trigger(session: ZnodeSession, cluster: AsyncCluster) -> None:  # noqa: ARG001
    delay = await underreplication.read_delay(session, ROOT)
    if isinstance(delay, int):
        await underreplication.set_delay(session, ROOT, delay)


async def _disable(session: ZnodeSession, cluster: AsyncCluster) -> None:  # noqa: ARG001
    await underreplication.disable(session, ROOT)


async def _enable(session: ZnodeSession, cluster: AsyncCluster) -> None:  # noqa: ARG001
    """Enable auto-recovery, also if the answers to this are lost."""
    while True:
        try:
            await underreplication.enable(session, ROOT)
        except ReplicationStateUnchanged:
            return
        except MetadataUnavailable:
            await asyncio.sleep(1.0)


def _is_open(ledger: LedgerOracles) -> bool:
    return ledger.metadata.state.name == "OPEN"


def _ignore(_: object) -> None:
    """Drop what a command tells."""
