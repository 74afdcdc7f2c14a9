"""`ledgerstore cluster kill`, `pause`, `resume`, `restart`: the faults of one process of a cluster."""

from __future__ import annotations

import click

from recovery.shell import local_cluster
from recovery.shell.exit_codes import check_installed, say, termination_as_interrupt

_which = click.argument("which", metavar="WHICH")


@click.command()
@_which
@local_cluster.directory
@click.option(
    "--for-good", is_flag=True, help="The bookie is lost: no command starts it again. Its files stay."
)
def kill(which: str, directory: str, for_good: object) -> None:
    """Kill one process without notice, as a crash of the program would (SIGKILL).

    WHICH is the number of a bookie, its name such as bookie-2, or metadata. DIR is the directory of `cluster
    up`; the default is the current directory. `cluster restart` starts it again, unless it was killed for
    good. Auto-recovery copies what a lost bookie held if there is a bookie that can take the copies.

    \b
    Examples:
      ledgerstore cluster kill 2
      ledgerstore cluster kill 2 --for-good
      ledgerstore cluster kill metadata /data/cluster
    """
    with local_cluster.cluster_at("kill", directory) as cluster:
        if for_good:
            say(f"cluster kill: {cluster.kill_for_good(which).name} is lost")
        else:
            say(f"cluster kill: {cluster.kill(which).name} is down")


@click.command()
@_which
@local_cluster.directory
def pause(which: str, directory: str) -> None:
    """Halt one process: its connections stay open, and it answers nothing (SIGSTOP).

    WHICH is the number of a bookie, its name such as bookie-2, or metadata. DIR is the directory of `cluster
    up`; the default is the current directory. After four seconds the metadata take a paused bookie for lost.
    `cluster resume` lets it go on.

    \b
    Examples:
      ledgerstore cluster pause 2
      ledgerstore cluster pause metadata /data/cluster
    """
    with local_cluster.cluster_at("pause", directory) as cluster:
        say(f"cluster pause: {cluster.pause(which).name} is paused")


@click.command()
@_which
@local_cluster.directory
def resume(which: str, directory: str) -> None:
    """Let a paused process go on (SIGCONT).

    WHICH is the number of a bookie, its name such as bookie-2, or metadata. DIR is the directory of `cluster
    up`; the default is the current directory.

    \b
    Examples:
      ledgerstore cluster resume 2
    """
    with local_cluster.cluster_at("resume", directory) as cluster:
        say(f"cluster resume: {cluster.resume(which).name} is up")


@click.command()
@_which
@local_cluster.directory
def restart(which: str, directory: str) -> None:
    """Stop one process in order if it runs, start it, and return when it serves clients.

    WHICH is the number of a bookie, its name such as bookie-2, or metadata. DIR is the directory of `cluster
    up`; the default is the current directory. A bookie that was killed is back when its session with the
    metadata has ended, after four seconds. `cluster up` starts all processes that are down.

    \b
    Examples:
      ledgerstore cluster restart 2
      ledgerstore cluster restart metadata /data/cluster
    """
    with local_cluster.cluster_at("restart", directory) as cluster, termination_as_interrupt():
        check_installed("cluster restart", "cluster", "prometheus_client")
        state = cluster.restart(which, lambda *_: None)
        say(f"cluster restart: {state.member(which).name} is up")
