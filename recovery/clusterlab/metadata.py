"""The metadata of one ledger: linearizable compare-and-set, with answers that are late or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Conflict, Unknown, Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.clusterlab.clients import ClientProcess
    from recovery.clusterlab.oracles import Oracles
    from recovery.clusterlab.world import World
    from storage.cluster.client.effects import MetadataRead, MetadataWritten
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

_LATE_S = 60.0


class ModelMetadata:
    """The node of the ledger, and its watches."""

    def __init__(self, world: World, oracles: Oracles, created: ClusterLedgerMetadata) -> None:
        self._world = world
        self._oracles = oracles
        self.node = Versioned(created, 0)
        self.loss = 0.0
        """The probability that an answer is lost."""
        self._watches: list[Callable[[Versioned[ClusterLedgerMetadata]], None]] = []

    def write(
        self,
        process: ClientProcess,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None:
        """Write for a process, which gets the answer, or `Unknown` if that is lost."""
        world, choices = self._world, self._world.choices
        if not choices.happens(self.loss):
            world.after(world.delay(), self._write_and_answer, process, metadata, version, answered)
            return
        kind = choices.pick(3)
        if kind:  # the write takes place, before the client gives up or after
            world.after(world.delay() + (kind - 1) * _LATE_S, self._write, process, metadata, version)
        world.after(_LATE_S / 2, process.deliver, answered, Unknown("the connection was lost"))

    def _write_and_answer(
        self,
        process: ClientProcess,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None:
        answer = self._write(process, metadata, version)
        self._world.after(self._world.delay(), process.deliver, answered, answer)

    def _write(
        self, process: ClientProcess, metadata: ClusterLedgerMetadata, version: int
    ) -> Written | Conflict:
        if version != self.node.version:
            return Conflict()
        if self._world.trace is not None:
            self._world.note(f"metadata    {shown(metadata)} by {process.name}")
        self._oracles.metadata_written(process.name, self.node.value, metadata)
        self.node = Versioned(metadata, version + 1)
        for watch in self._watches:
            self._world.after(self._world.delay(), watch, self.node)
        return Written(version + 1)

    def read(self, process: ClientProcess, answered: Callable[[MetadataRead], None]) -> None:
        """Read for a process."""
        self._world.after(self._world.delay(), self._read, process, answered)

    def _read(self, process: ClientProcess, answered: Callable[[MetadataRead], None]) -> None:
        answer: MetadataRead = self.node
        if self._world.choices.happens(self.loss / 4):
            answer = Unknown("the connection was lost")
        self._world.after(self._world.delay(), process.deliver, answered, answer)

    def watch(self, changed: Callable[[Versioned[ClusterLedgerMetadata]], None]) -> None:
        """Call with the present metadata and after each change, some time later."""
        self._watches.append(changed)
        self._world.after(self._world.delay(), changed, self.node)


def shown(metadata: ClusterLedgerMetadata) -> str:
    """Return metadata as a line of a trace."""
    segments = " ".join(f"{one.first_entry}:{','.join(one.bookies)}" for one in metadata.segments)
    end = f" last {metadata.last_entry} length {metadata.length}" if metadata.is_closed else ""
    return f"{metadata.state.name} {segments}{end}"
