"""`ledgerstore cluster status`: the processes of a cluster on this machine, in the rows of `cluster up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import local_cluster, options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import Form, row_writer

if TYPE_CHECKING:
    from recovery.shell.output import Row


@click.command()
@local_cluster.directory
@options.output
@click.pass_context
def command(ctx: click.Context, directory: str, form: Form) -> None:
    """Show the processes of a cluster on this machine: state, registration, address, space.

    DIR is the directory of `cluster up`; the default is the current directory. REGISTERED is what the
    metadata say of a bookie; that of a bookie that was killed stays for some seconds. The command ends with 1
    if a process is down or paused, or a bookie is not registered.

    \b
    Examples:
      ledgerstore cluster status
      ledgerstore cluster status /data/cluster --json | jq '.[] | select(.state != "up")'
    """
    with local_cluster.cluster_at("status", directory) as cluster:
        from recovery.local_cluster.look import look_at

        state = cluster.load()
        found = local_cluster.rows(cluster, look_at(state, local_cluster.LOOK_TIMEOUT_S))
        out = row_writer(form, local_cluster.COLUMNS)
        for row in found:
            out.row(row)
        out.end()
        say(f"cluster status: {local_cluster.summary(found)}, {state.uri}")
        ctx.exit(Exit.CLEAN if all(map(_is_well, found)) else Exit.FINDINGS)


def _is_well(row: Row) -> bool:
    return row["state"] == "up" and row["registered"] not in ("no", "read-only")
