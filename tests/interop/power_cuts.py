"""Test with the unmodified Java client that entries survive power cuts of the bookies' file systems.

    python tests/interop/power_cuts.py      both file systems, as `make interop-power` does
    python tests/interop/power_cuts.py xfs  only one of them

Each bookie and the metadata server have a file system of their own on a loop device. While `ClientLoad`
writes, the power of one bookie after the other is cut, and at last that of all servers at once: the file
system writes nothing more, the server is killed, and all that was not durable is gone when the file system is
mounted again. Needs root.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from bookies import DIRECTORY, cluster, our_bookie, outcome_of, wait_until_registered, writing_client
from jvm import exit_code_of
from zookeeper_processes import KillableServer, free_port, our_server_again

from recovery.crashlab.run.volume import KINDS, Volume, why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    Server = Callable[[Path], AbstractContextManager[int]]
    """Runs a server on a directory; its process id."""

_BOOKIES = 4
_BETWEEN_S, _DARK_S = 2.0, 1.0
_ENTRIES_OF_A_LEDGER = 2_000
_PAUSE_MS = 200
"""After each 200 entries, so that the file systems, which are in memory and therefore small, do not fill."""
_WRITING_S = 600
"""More than it takes: the client writes until it gets a line."""


class CuttableServer:
    """A server of ours whose store has a file system of its own."""

    def __init__(self, directory: Path, kind: str, run: Server, held: ExitStack) -> None:
        """`run` runs the server on a directory."""
        self._volume = held.enter_context(Volume(kind))
        # The log is not on the volume, so that it is still there after a cut.
        directory.mkdir()
        (directory / "store").symlink_to(self._volume.fresh())
        self._server = KillableServer(partial(run, directory), held)

    def cut_power(self) -> None:
        """Nothing is written any more from here on, and the process ends."""
        self._volume.cut()
        self._server.kill()

    def restore_power(self) -> None:
        """Mount what was durable, and start again."""
        self._server.wait_for_end()
        self._volume.crash_and_remount()
        self._server.start()


def cuttable_bookie(uri: str, number: int, kind: str, held: ExitStack) -> CuttableServer:
    port = free_port()
    return CuttableServer(
        DIRECTORY / f"bookie-{number}", kind, lambda directory: our_bookie(uri, directory, port), held
    )


class CuttableMetadata:
    """A metadata server that can be cut, as a cluster wants it."""

    server: CuttableServer
    """Only while it is serving."""

    def __init__(self, kind: str) -> None:
        self._kind, self._port = kind, free_port()

    @contextmanager
    def serving(self) -> Iterator[int]:
        with ExitStack() as held:
            self.server = CuttableServer(DIRECTORY / "metadata", self._kind, self._run, held)
            yield self._port

    @contextmanager
    def _run(self, directory: Path) -> Iterator[int]:
        with our_server_again(directory, self._port) as server:
            yield server.pid


def cut_under_load(kind: str, protocol: str) -> int:
    """Return how many acknowledged entries were lost, or changed, by cuts of our bookies' power."""
    metadata = CuttableMetadata(kind)
    with cluster(metadata.serving, our_bookie, 0) as uri, ExitStack() as held:
        bookies = [cuttable_bookie(uri, number, kind, held) for number in range(_BOOKIES)]
        wait_until_registered(uri, _BOOKIES)
        client = held.enter_context(
            writing_client(uri, protocol, _WRITING_S, _ENTRIES_OF_A_LEDGER, _PAUSE_MS)
        )
        for cut in (*([bookie] for bookie in bookies), [metadata.server, *bookies]):
            time.sleep(_BETWEEN_S)
            for server in cut:
                server.cut_power()
            time.sleep(_DARK_S)
            for server in cut:
                server.restore_power()
        wait_until_registered(uri, _BOOKIES)
        line = client.checked()
    print(
        f"{kind}, {protocol}, {_BOOKIES} cuts of bookies and one of all servers at once: {line}",
        flush=True,
    )
    outcome = outcome_of(line)
    return outcome.lost + outcome.changed if outcome.acknowledged else 1


def main(arguments: list[str]) -> int:
    wrong = cuts = 0
    for kind, protocol in zip(KINDS, ("v2", "v3"), strict=True):
        if arguments not in ([], [kind]):
            continue
        if reason := why_not(kind):
            print(f"{kind}: NOT CUT: {reason}")
            continue
        wrong += cut_under_load(kind, protocol)
        cuts += _BOOKIES + 1
    print(f"interop-power: {cuts} power cuts, {wrong} lost or changed entries")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("interop-power", lambda: main(sys.argv[1:])))
