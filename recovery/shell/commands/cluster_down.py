"""`ledgerstore cluster down`: stop the processes of a cluster on this machine."""

from __future__ import annotations

import click

from recovery.shell import local_cluster
from recovery.shell.exit_codes import Exit, say


@click.command()
@local_cluster.directory
@click.pass_context
def command(ctx: click.Context, directory: str) -> None:
    """Stop all processes of a cluster on this machine in order: the bookies, then the metadata server.

    DIR is the directory of `cluster up`; the default is the current directory. Everything that is stored
    stays, and the next `cluster up` serves it again. The command ends with 1 if a process did not end within
    30 seconds and was killed.

    \b
    Examples:
      ledgerstore cluster down
      ledgerstore cluster down /data/cluster
    """
    with local_cluster.cluster_at("down", directory) as cluster:
        killed = cluster.down(lambda *_: None)
        say(local_cluster.stopped("down", killed))
        ctx.exit(Exit.FINDINGS if killed else Exit.CLEAN)
