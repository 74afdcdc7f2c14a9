"""What must hold while ledgers are repaired. It is checked at each write of the metadata.

T2, T3  as in `oracles`, but for copies that a fault has destroyed: a repair loses no copy of an entry
O6      a mark goes only when every copy is there that it was about, and when nothing goes wrong any more
        all marks and locks go, no ledger names a bookie that is not there, and every copy is good
O7      a bookie deletes only copies of ledgers that were deleted, or that are closed and do not name it, and
        when nothing goes wrong any more it deletes all of these
O10     a mark is deleted by the session that holds the lock, and a lock only by its own session
O11     an open ledger is recovered only if one of its bookies was not registered when it was decided
O12     nothing is marked, locked or changed while auto-recovery is disabled
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from recovery.autorecovery.fragments import fixed_fragments
from recovery.clusterlab.oracles import InvariantViolated, Oracles
from recovery.clusterlab.recovery_hosts import PATHS, ROOT
from recovery.clusterlab.tree_session import node_at
from recovery.clusterlab.world import EventKind
from storage.cluster.metadata import ledger as ledger_format
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, ClusterLedgerState
from storage.cluster.metadata.underreplication import (
    base_path,
    decode_mark,
    disable_path,
    lock_path,
    mark_path,
)
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper.records import OpCode
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from recovery.autorecovery.fragments import Fragment
    from recovery.clusterlab.recovery_hosts import LedgerNodeInTree
    from recovery.clusterlab.world import World
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.zookeeper.records import PathAndVersion
    from storage.cluster.zookeeper.tree import ZnodeTree

_AVAILABLE = f"{ROOT}/available/"
_COOKIES = f"{ROOT}/cookies/"
_MARK = re.compile(rf"{re.escape(base_path(ROOT))}/ledgers/.*/urL(\d+)")
_LOCK = re.compile(rf"{re.escape(base_path(ROOT))}/locks/urL(\d+)")

DISABLED_UNITS = 500.0
"""The time after disabling in which auto-recovery may still finish what was under way: the longest lag of a
follower, a call that is lost, and a call to a bookie without an answer.
"""


class LedgerOracles(Oracles):
    """Knows one of several ledgers, and which copies a fault has destroyed."""

    def __init__(
        self, world: World, quorums: Quorums, entries: EntryCodec, metadata: ClusterLedgerMetadata
    ) -> None:
        super().__init__(quorums, entries, metadata)
        self.ledger_id = entries.ledger_id
        self.node: LedgerNodeInTree
        self.codec = entries
        self.quorums = quorums
        self._world = world
        self.destroyed: dict[tuple[str, int], float] = {}
        """By bookie and entry: when a fault has destroyed the copy."""
        self._acknowledgements: list[tuple[float, int]] = []
        """When entries were acknowledged, and the last of them."""
        self.is_deleted = False
        self.closed_at = -1.0

    @property
    def metadata(self) -> ClusterLedgerMetadata:
        return self._metadata

    @property
    def closed_by(self) -> str:
        """The client that has closed the ledger."""
        return self._closed_by

    def entries_acknowledged(self, first: int, last: int) -> None:
        super().entries_acknowledged(first, last)
        self._acknowledgements.append((self._world.now, self.acknowledged))

    def acknowledged_at(self, time: float) -> int:
        """Return the last entry that was acknowledged by this time."""
        return max((last for at, last in self._acknowledgements if at <= time), default=NO_ENTRY)

    def destroy(self, bookie: str, entry_id: int) -> None:
        """Note that a fault has destroyed a copy."""
        self.destroyed[bookie, entry_id] = self._world.now

    def is_good(self, bookie: str, entry_id: int) -> bool:
        """Return whether a bookie has a good copy."""
        data = self._copy(bookie, entry_id)
        entry = None if data is None else self.codec.decode(entry_id, data)
        if entry is None:
            return False
        if entry.payload != self._payloads[entry_id] or entry.length != self._lengths[entry_id]:
            raise InvariantViolated("T4", f"{bookie} has another payload or length of {entry_id}")
        return True

    def is_superfluous_at(self, bookie: str) -> bool:
        """Return whether the ledger is closed, and no entry of it belongs to a bookie."""
        return self._metadata.is_closed and all(bookie not in one.bookies for one in self._metadata.segments)

    def good_copies(self, entry_id: int) -> set[str]:
        """Return the bookies of the metadata that have a good copy."""
        bookies = self._metadata.segment_of(entry_id).bookies
        named = {bookies[index] for index in self._quorums.write_set(entry_id)}
        return {one for one in named if self.is_good(one, entry_id)}

    @property
    def count(self) -> int:
        """The entries that no fault and no repair may lose."""
        return self._end + 1 if self._metadata.is_closed else self.acknowledged + 1

    def _copy(self, bookie: str, entry_id: int) -> bytes | None:
        return super()._copy(bookie, entry_id) if bookie in self.bookies else None

    def _check_copies(self, invariant: str, entry_id: int, metadata: ClusterLedgerMetadata) -> None:
        bookies = metadata.segment_of(entry_id).bookies
        copies = sum(self.is_good(bookies[index], entry_id) for index in self._quorums.write_set(entry_id))
        destroyed = sum(entry == entry_id for _, entry in self.destroyed)
        if copies < max(1, self._quorums.ack - destroyed):
            raise InvariantViolated(
                invariant,
                f"entry {entry_id} of ledger {self.ledger_id} has {copies} copies at its bookies in"
                f" {','.join(bookies)}",
            )


class ClusterOracles:
    """Knows all ledgers, and sees every write of the metadata before it takes place."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ledgers: dict[int, LedgerOracles] = {}
        self._by_path: dict[str, LedgerOracles] = {}
        self.repairers: set[str] = set()
        """The processes of auto-recovery."""
        self._registered: frozenset[str] = frozenset()
        self._absent_since: dict[str, float] = {}
        self._last_absent: dict[str, float] = {}
        """By bookie: the last time at which it was not registered."""
        self._disabled_since: float | None = None
        self._paused_until: dict[str, float] = {}
        """By process: the end of its pause, until which it learns nothing."""
        self.looked_at: Mapping[tuple[int, str], float] = {}
        """By session and path: when the task that writes has last asked for the registered bookies."""

    def add(self, ledger: LedgerOracles) -> None:
        self.ledgers[ledger.ledger_id] = ledger
        self._by_path[PATHS.path_of(ledger.ledger_id)] = ledger

    # ── what bookies tell ─────────────────────────────────────────────────────────────────────────────

    def fence_answered(self, bookie: str, ledger_id: int) -> None:
        self.ledgers[ledger_id].fence_answered(bookie, ledger_id)

    def add_stored(self, bookie: str, ledger_id: int, entry_id: int) -> None:
        self.ledgers[ledger_id].add_stored(bookie, ledger_id, entry_id)

    def copy_deleted(self, bookie: str, ledger_id: int) -> None:
        """Check a bookie that is about to delete its copy of a ledger."""
        self._world.note(EventKind.REPORT, bookie, f"deletes its copy of ledger {ledger_id}")
        ledger = self.ledgers[ledger_id]
        if not ledger.is_deleted and not ledger.is_superfluous_at(bookie):
            raise InvariantViolated(
                "O7", f"{bookie} deletes its copy of ledger {ledger_id}, which it has to keep"
            )

    def check_collected(self, bookie: str, ledger_ids: Iterable[int]) -> None:
        """Check that a bookie has no more of these copies than it needs, when it has had the time."""
        for ledger_id in ledger_ids:
            ledger = self.ledgers[ledger_id]
            # Metadata without any ledger are taken for lost: nothing is deleted then.
            if bool(self.living) if ledger.is_deleted else ledger.is_superfluous_at(bookie):
                raise InvariantViolated("O7", f"{bookie} still has a copy of ledger {ledger_id}")

    def paused(self, client: str, until: float) -> None:
        """Note a process that does later what it has decided before."""
        self._paused_until[client] = until

    # ── writes of the metadata ────────────────────────────────────────────────────────────────────────

    def committing(
        self, client: str, session_id: int, opcode: OpCode, request: Any, tree: ZnodeTree
    ) -> Callable[[], None] | None:
        """Look at a write. Return what is to be done after it if it is not refused."""
        if opcode is OpCode.CLOSE_SESSION:
            return lambda: self._registrations_changed(tree)
        path: str = request.path
        if client in self.repairers:
            self._check_enabled(client, opcode, path, tree)
        if opcode is OpCode.DELETE and path.startswith(_COOKIES):
            return lambda: self._cookie_goes(path.removeprefix(_COOKIES))
        if path.startswith(_AVAILABLE):
            return lambda: self._registrations_changed(tree)
        if path == disable_path(ROOT):
            return self._switched
        if opcode is OpCode.DELETE and (match := _MARK.fullmatch(path)):
            return self._mark_goes(client, session_id, request, int(match[1]), tree)
        if opcode is OpCode.DELETE and (match := _LOCK.fullmatch(path)):
            return self._lock_goes(client, session_id, path, tree)
        ledger = self._by_path.get(path)
        if ledger is None or opcode is OpCode.CREATE:
            return None
        if opcode is OpCode.DELETE:
            return lambda: setattr(ledger, "is_deleted", True)
        looked_at = self.looked_at.get((session_id, path), 0.0)
        return self._ledger_changes(client, ledger, request.data, looked_at)

    def _ledger_changes(
        self, client: str, ledger: LedgerOracles, data: bytes, looked_at: float
    ) -> Callable[[], None]:
        after = ledger_format.decode(data)
        if not isinstance(after, ClusterLedgerMetadata):
            raise InvariantViolated("T1", f"{client} writes {after.reason}")

        def check() -> None:
            before = ledger.metadata
            if client in self.repairers and before.state is ClusterLedgerState.OPEN is not after.state:
                self._check_may_recover(client, before, looked_at)
            ledger.metadata_written(client, before, after)
            ledger.node.changed(after)
            if after.is_closed and not before.is_closed:
                ledger.closed_at = self._world.now

        return check

    def _check_may_recover(self, client: str, before: ClusterLedgerMetadata, looked_at: float) -> None:
        bookies = before.segments[-1].bookies
        if all(self._was_registered(bookie, looked_at) for bookie in bookies):
            raise InvariantViolated(
                "O11",
                f"{client} recovers a ledger whose bookies {','.join(bookies)} were registered when it asked",
            )

    def _was_registered(self, bookie: str, since: float) -> bool:
        """Return whether a bookie was registered all the time since."""
        return bookie in self._registered and self._last_absent.get(bookie, -1.0) < since

    def _registrations_changed(self, tree: ZnodeTree) -> None:
        writable = tree.children(f"{ROOT}/available")
        now = frozenset((*writable, *tree.children(f"{ROOT}/available/readonly"))) - {"readonly"}
        for bookie in self._registered - now:
            self._absent_since[bookie] = self._world.now
        for bookie in now - self._registered:
            self._absent_since.pop(bookie, None)
            self._last_absent[bookie] = self._world.now
        self._registered = now

    def is_absent_since(self, bookie: str, since: float) -> bool:
        """Return whether a bookie was not registered at any time since."""
        absent_since = self._absent_since.get(bookie, 0.0)
        return bookie not in self._registered and absent_since <= since

    def _cookie_goes(self, bookie: str) -> None:
        """Check that a bookie which is decommissioned is named by no ledger, and does not run."""
        for ledger in self.living:
            if any(bookie in segment.bookies for segment in ledger.metadata.segments):
                raise InvariantViolated(
                    "O6", f"the cookie of {bookie} goes, which ledger {ledger.ledger_id} names"
                )
        if bookie in self._registered:
            raise InvariantViolated("O6", f"the cookie of {bookie} goes, which is registered")

    def _switched(self) -> None:
        self._disabled_since = self._world.now if self._disabled_since is None else None

    def _check_enabled(self, client: str, opcode: OpCode, path: str, tree: ZnodeTree) -> None:
        if self._disabled_since is None:
            return
        since = max(self._disabled_since, self._paused_until.get(client, 0.0))
        if self._world.now - since < DISABLED_UNITS:
            return
        is_ledger = path in self._by_path and path in tree.nodes
        is_new = opcode is not OpCode.DELETE and (_MARK.fullmatch(path) or _LOCK.fullmatch(path))
        if is_ledger or is_new:
            raise InvariantViolated(
                "O12", f"{client}: {opcode.name.lower()} {path}, disabled since {since:.0f}"
            )

    # ── marks and locks ───────────────────────────────────────────────────────────────────────────────

    def _lock_goes(
        self, client: str, session_id: int, path: str, tree: ZnodeTree
    ) -> Callable[[], None] | None:
        lock = tree.nodes.get(path)
        if lock is not None and lock.owner != session_id:
            raise InvariantViolated("O10", f"{client} deletes the lock of another session")
        return None

    def _mark_goes(
        self, client: str, session_id: int, request: PathAndVersion, ledger_id: int, tree: ZnodeTree
    ) -> Callable[[], None] | None:
        if request.version < 0:
            raise InvariantViolated("O10", f"{client} deletes a mark that may have been renewed")
        path = mark_path(ROOT, ledger_id)
        node = node_at(tree, path)
        lock = tree.nodes.get(lock_path(ROOT, ledger_id))
        if isinstance(node, Gone):
            return None

        def check() -> None:
            if lock is None or lock.owner != session_id:
                raise InvariantViolated("O10", f"{client} deletes a mark without its lock")
            ledger = self.ledgers.get(ledger_id)
            if ledger is None or ledger.is_deleted:
                return
            suspects = frozenset(decode_mark(path, ledger_id, node).replicas)
            if ledger.closed_by in self.repairers:
                # The recovery has ended with a quorum of copies, and no writer reports the others.
                suspects |= frozenset(ledger.metadata.segments[-1].bookies)
            # The time of day in the tree is that of the world.
            self._check_repaired(ledger, suspects, _time_of(lock.ctime))

        return check

    def _check_repaired(self, ledger: LedgerOracles, suspects: frozenset[str], since: float) -> None:
        """Check what a repair must have seen to, that has begun at this time or later."""
        # A writer or a reader may close the ledger in the moment in which the repair has ended.
        is_closed_late = ledger.closed_at >= since and ledger.closed_by not in self.repairers
        last = ledger.metadata.segments[-1].first_entry
        for fragment in fixed_fragments(ledger.metadata):
            if is_closed_late and fragment.key.segment == last:
                continue
            if self.is_absent_since(fragment.bookie, since):
                raise InvariantViolated(
                    "O6", f"a mark goes, and ledger {ledger.ledger_id} names {fragment.bookie}"
                )
            for entry_id in _entries_read(fragment, suspects):
                is_late = ledger.destroyed.get((fragment.bookie, entry_id), -1.0) >= since
                if not is_late and not ledger.is_good(fragment.bookie, entry_id):
                    raise InvariantViolated(
                        "O6",
                        f"a mark goes, and {fragment.bookie} lacks entry {entry_id} of ledger"
                        f" {ledger.ledger_id}",
                    )
        if is_closed_late or not ledger.metadata.is_closed:
            self._check_growing(ledger, suspects, since)

    def _check_growing(self, ledger: LedgerOracles, suspects: frozenset[str], since: float) -> None:
        segment = ledger.metadata.segments[-1]
        for bookie in segment.bookies:
            if self.is_absent_since(bookie, since):
                raise InvariantViolated("O6", f"a mark goes, and a ledger grows on {bookie}")
        # An entry that is acknowledged later was sent, or sent again, to a bookie that was back.
        for entry_id in range(segment.first_entry, ledger.acknowledged_at(since) + 1):
            named = {segment.bookies[index] for index in ledger.quorums.write_set(entry_id)}
            for bookie in sorted(named & suspects):
                if not ledger.is_good(bookie, entry_id):
                    raise InvariantViolated(
                        "O6", f"a mark goes, and {bookie} lacks entry {entry_id} of a ledger that grows"
                    )

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def check_names(self) -> None:
        """Check that no ledger names a bookie that is not there."""
        for ledger in self.living:
            named = {bookie for one in ledger.metadata.segments for bookie in one.bookies}
            if named - self._registered:
                missing = ",".join(sorted(named - self._registered))
                raise InvariantViolated("O6", f"ledger {ledger.ledger_id} names {missing}, not registered")

    def check_whole(self) -> None:
        """Check that every copy is there and is good."""
        for ledger in self.living:
            for fragment in fixed_fragments(ledger.metadata):
                for entry_id in fragment.entries():
                    if not ledger.is_good(fragment.bookie, entry_id):
                        raise InvariantViolated(
                            "O6",
                            f"{fragment.bookie} lacks entry {entry_id} of ledger {ledger.ledger_id}",
                        )

    @property
    def living(self) -> list[LedgerOracles]:
        return [one for one in self.ledgers.values() if not one.is_deleted]


def _entries_read(fragment: Fragment, suspects: frozenset[str]) -> list[int]:
    """Return the entries that a repair reads: all of a suspect, the first and the last of others."""
    if fragment.bookie in suspects:
        return [*fragment.entries()]
    return [fragment.entry_at(one) for one in sorted({0, fragment.count - 1})] if fragment.count else []


def _time_of(time_ms: int) -> float:
    return (time_ms - 1_000_000) / 100
