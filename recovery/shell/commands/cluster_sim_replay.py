"""`ledgerstore cluster-sim replay`: play one schedule again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell.commands.cluster_sim_run import KIND_HELP, KINDS
from recovery.shell.exit_codes import CannotDo, Exit, say

if TYPE_CHECKING:
    from recovery.clusterlab.explorer import ViolatingSchedule


@click.command()
@click.argument("schedule", metavar="SEED|FILE")
@click.option("--kind", type=click.Choice(KINDS), default="plain", show_default=True, help=KIND_HELP)
@click.option("--minimise", "is_minimised", is_flag=True, help="Make the schedule smaller first.")
@click.option("--out", metavar="FILE", help="Write a page of HTML with its messages.")
@click.pass_context
def command(ctx: click.Context, schedule: str, kind: str, is_minimised: object, out: str | None) -> None:
    """Play a schedule that violates an invariant again, message by message.

    SEED is a number that `cluster-sim run` prints. FILE is its report.json: then the first violation in it is
    played, with its choices. Exit code 1 means that the violation still happens.

    \b
    Examples:
      ledgerstore cluster-sim replay 4599
      ledgerstore cluster-sim replay cluster-report/report.json --out page.html
    """
    from recovery.clusterlab.campaign import KINDS, CampaignFigures
    from recovery.clusterlab.explorer import minimise, play, trace

    seed, choices, kind = (int(schedule), None, kind) if schedule.isdigit() else _first(Path(schedule))
    failure: ViolatingSchedule | None = play(seed, choices, KINDS[kind])
    if failure is None:
        say(f"replay: schedule {seed} violates nothing")
        ctx.exit(Exit.CLEAN)
    failure = minimise(failure) if is_minimised else failure
    for event in trace(failure):
        click.echo(str(event))
    if out is not None:
        from recovery.clusterlab.report.page import render

        figures = CampaignFigures(failure.seed, schedules=1, failures=[failure])
        Path(out).write_text(render(figures), encoding="utf-8")
        say(f"report: {out}")
    say(f"replay: the violation still happens: {failure.text}")
    ctx.exit(Exit.FINDINGS)


def _first(path: Path) -> tuple[int, tuple[int, ...], str]:
    """Return the seed, the choices and the kind of the first violation of a report."""
    try:
        violations = json.loads(path.read_text(encoding="utf-8"))["violations"]
        found = [(int(one["seed"]), tuple(map(int, one["choices"])), str(one["kind"])) for one in violations]
    except (ValueError, TypeError, KeyError) as error:
        raise CannotDo(f"{path} is not the report.json of a run: {error!r}") from error
    if not found:
        raise CannotDo(f"{path} has no violation")
    return found[0]
