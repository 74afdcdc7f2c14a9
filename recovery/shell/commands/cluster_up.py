"""`ledgerstore cluster up`: a metadata server and bookies as processes of this machine.

name          metadata, or bookie-1 …
state         up, paused, down, or lost for good; starting or stopping while the command waits for it
registered    writable, read-only or no: what the metadata say of a bookie; null if they do not answer
address       where it listens; the address of a bookie is also its id
pid           of its process, if there is one
ledgers       of which a bookie has entries or a fence; null if it does not answer
bytes         that its files occupy
uri           of the metadata
directory     of its store
log           what its processes have printed
"""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING

import click

from recovery.shell import local_cluster, options
from recovery.shell.exit_codes import CannotDo, Exit, check_installed, say, termination_as_interrupt
from recovery.shell.output import Form, row_writer

if TYPE_CHECKING:
    from recovery.local_cluster.cluster import LocalCluster
    from recovery.local_cluster.state import ClusterRequest, ClusterState
    from recovery.shell.local_cluster import ClusterTable

_LOOK_S = 0.25


class Then(enum.Enum):
    """The action of `up` when all processes are ready."""

    STAY = "stay"
    RETURN = "return"


@click.command()
@local_cluster.directory
@click.option(
    "--bookies",
    type=click.IntRange(1, 100),
    metavar="N",
    help="How many bookies.  [default: 3]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port of the metadata server; 0 for any free one.  [default: 2181]",
)
@click.option(
    "--bookie-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port of the first bookie; the others have the next ones. 0 for any.  [default: 3181]",
)
@click.option(
    "--metadata",
    metavar="URI",
    help="Join the cluster in this ZooKeeper, such as zk://localhost:2181/ledgers: only bookies are started.",
)
@click.option("--detach", is_flag=True, help="Return when all are ready. `cluster down` stops them.")
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    bookies: int | None,
    port: int | None,
    bookie_port: int | None,
    metadata: str | None,
    detach: object,
    form: Form,
) -> None:
    """Start a metadata server and bookies on this machine, and show them until Ctrl-C stops them in order.

    DIR is an empty directory, or one of an earlier `cluster up`, whose entries are then there again; the
    default is the current directory. It is made if it does not exist. All processes listen on 127.0.0.1, so
    clients have to be on this machine. Unmodified clients of Apache BookKeeper use the cluster by its
    address, which is printed.

    If some processes run and others are down, those that are down are started. While it runs, use `cluster
    status`, `kill`, `pause`, `resume` and `restart` from another terminal. With --json the rows are printed
    once, when all processes are ready.

    \b
    Examples:
      ledgerstore cluster up
      ledgerstore cluster up /data/cluster --bookies 4 --detach
      ledgerstore cluster up --port 0 --bookie-port 0
      ledgerstore cluster up --metadata zk://localhost:2181/ledgers
    """
    if metadata is not None and port is not None:
        raise click.UsageError("--port is that of an own metadata server, which --metadata does not start")
    with local_cluster.cluster_at("up", directory) as cluster:
        check_installed("cluster up", "cluster", "prometheus_client")
        from recovery.local_cluster.state import ClusterRequest

        request = ClusterRequest(bookies, metadata, port, bookie_port)
        then = Then.RETURN if detach else Then.STAY
        with termination_as_interrupt():
            ctx.exit(_run(cluster, directory, request, form, then))


def _run(cluster: LocalCluster, path: str, request: ClusterRequest, form: Form, then: Then) -> Exit:
    began = time.monotonic()
    code, killed = Exit.INTERRUPTED, list[str]()
    with local_cluster.ClusterTable(cluster, path) as table:
        try:
            state = cluster.up(request, table.draw)
            code = Exit.CLEAN
            if then is Then.RETURN or form is not Form.TABLE or not local_cluster.is_live():
                _show(cluster, state, path, form, then, time.monotonic() - began)
            if then is Then.RETURN:
                return code
            _stay(cluster, state, table)
        except KeyboardInterrupt:
            if then is Then.RETURN:
                raise
            killed = cluster.down(table.draw)
    say(local_cluster.stopped("up", killed))
    return Exit.FINDINGS if killed else code


def _show(
    cluster: LocalCluster, state: ClusterState, path: str, form: Form, then: Then, seconds: float
) -> None:
    from recovery.local_cluster.look import look_at

    found = local_cluster.rows(cluster, look_at(state, local_cluster.LOOK_TIMEOUT_S))
    out = row_writer(form, local_cluster.COLUMNS)
    for row in found:
        out.row(row)
    out.end()
    local_cluster.say_hints(state, path, "" if then is Then.RETURN else "Ctrl-C")
    say(f"cluster up: {local_cluster.summary(found)} after {seconds:.1f} s")


def _stay(cluster: LocalCluster, state: ClusterState, table: ClusterTable) -> None:
    """Show the cluster until another command has stopped it, or until Ctrl-C."""
    from recovery.local_cluster.state import LocalClusterError

    before: dict[str, str] = {}
    try:
        while not state.is_stopped:
            table.draw(state)
            before = _say_changes(cluster, before)
            time.sleep(_LOOK_S)
            state = cluster.load()
    except LocalClusterError as error:
        # Its directory was removed. Otherwise nothing would name its processes any more.
        cluster.stop_unrecorded(state, lambda *_: None)
        raise CannotDo(f"{error}; its processes were stopped") from error


def _say_changes(cluster: LocalCluster, before: dict[str, str]) -> dict[str, str]:
    """Print the processes that are in another state than before, where no table shows it."""
    now = {one.member.name: one.state.value for one in cluster.status()}
    if not local_cluster.is_live():
        for name, state in now.items():
            if before.get(name, state) != state:
                say(f"{name} is {state}")
    return now
