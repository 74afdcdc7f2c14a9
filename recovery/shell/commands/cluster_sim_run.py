"""`ledgerstore cluster-sim run`: play many schedules, and report what violates an invariant."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.report.formatting import counted
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import StageProgressBar

if TYPE_CHECKING:
    from recovery.clusterlab.campaign import CampaignFigures

OUT = "cluster-report"

SCHEDULES = 60_000

_SHOWN_MAX = 10

KINDS = ("plain", "deferred", "autorecovery", "topics")
KIND_HELP = (
    "Ledgers whose adds are durable when they are answered (plain), or after a later sync (deferred), or a"
    " cluster that loses bookies and is repaired (autorecovery), or a topic that owners take over from each"
    " other (topics)."
)


@click.command()
@click.option(
    "--schedules",
    type=click.IntRange(min=0),
    default=SCHEDULES,
    metavar="N",
    help=f"Number of random schedules.  [default: {SCHEDULES}]",
)
@click.option(
    "--first", type=click.IntRange(min=0), default=0, metavar="SEED", help="The first seed.  [default: 0]"
)
@click.option("--kind", type=click.Choice(KINDS), default="plain", show_default=True, help=KIND_HELP)
@click.option(
    "--worlds",
    type=click.Choice(["none", "small", "larger"]),
    default="none",
    help="Play every order of the messages of small worlds, in a minute, or of larger ones, in hours.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of worker processes.  [default: CPUs]",
)
@click.option("--out", default=OUT, metavar="DIR", help=f"Directory for the report.  [default: {OUT}]")
@click.option("--json", "is_json", is_flag=True, help="Print the figures of the run as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    schedules: int,
    first: int,
    kind: str,
    worlds: str,
    jobs: int | None,
    out: str,
    is_json: object,
) -> None:
    """Play random schedules and small worlds, and check the invariants of the protocol.

    A violation is made smaller, and report.html in DIR shows its messages; report.json has all figures and
    seeds. Exit code 1 means that there is a violation.

    \b
    Examples:
      ledgerstore cluster-sim run
      ledgerstore cluster-sim run --schedules 1000000 --first 60000
      ledgerstore cluster-sim run --schedules 0 --worlds small
      ledgerstore cluster-sim run --kind topics --schedules 20000
    """
    from recovery.clusterlab.campaign import CampaignFigures, play_all, play_worlds

    figures = CampaignFigures(first)
    processes = jobs or os.cpu_count() or 1
    bar = StageProgressBar("cluster-sim")
    names = _names(worlds)
    try:
        for played in play_all(figures, schedules, processes, kind) if schedules else ():
            if bar.is_due:
                bar.show(played / schedules, f"{played:,} schedules, {figures.violations} violations")
        for name in play_worlds(figures, names, processes) if names else ():
            if bar.is_due:
                bar.show(len(figures.worlds) / len(names), name)
    finally:
        bar.end()
    _make_smaller(figures)
    page = _write(figures, Path(out))
    if is_json:
        json.dump(_figures(figures), sys.stdout)
        click.echo()
    else:
        _print(figures)
    say(f"report: {page}")
    say(_verdict(figures))
    ctx.exit(Exit.FINDINGS if figures.violations else Exit.CLEAN)


def _names(worlds: str) -> list[str]:
    from recovery.clusterlab.small_worlds import LARGER_WORLDS, SMALL_WORLDS

    return {"none": [], "small": [*SMALL_WORLDS], "larger": [*LARGER_WORLDS]}[worlds]


def _make_smaller(figures: CampaignFigures) -> None:
    from recovery.clusterlab.explorer import minimise
    from recovery.clusterlab.report.page import SHOWN_MAX

    smaller = [minimise(one) for one in figures.failures[:SHOWN_MAX]]
    figures.failures[:SHOWN_MAX] = smaller


def _write(figures: CampaignFigures, out: Path) -> Path:
    from recovery.clusterlab.report.page import render

    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(_figures(figures), indent=1), encoding="utf-8")
    page = out / "report.html"
    page.write_text(render(figures), encoding="utf-8")
    return page


def _figures(figures: CampaignFigures) -> dict[str, object]:
    from recovery.clusterlab.campaign import KINDS

    return {
        "first_seed": figures.first_seed,
        "schedules": figures.schedules,
        "violations": [
            {
                "seed": one.seed,
                "invariant": one.invariant,
                "text": one.text,
                "kind": next(name for name, kind in KINDS.items() if kind is one.kind),
                "choices": one.choices,
            }
            for one in figures.failures
        ],
        "worlds": {
            name: {"states": one.states, "steps": one.steps, "ends": one.ends, "violation": one.violation}
            for name, one in figures.worlds.items()
        },
    }


def _print(figures: CampaignFigures) -> None:
    for failure in figures.failures[:_SHOWN_MAX]:
        click.echo(f"seed {failure.seed}: {failure.text}")
    for name, world in figures.worlds.items():
        counts = f"{world.states:,} states, {world.steps:,} steps, {world.ends:,} ends"
        click.echo(f"{name:<40} {counts}")
        for line in (*world.path, world.violation) if world.violation else ():
            click.echo(f"    {line}")


def _verdict(figures: CampaignFigures) -> str:
    parts = []
    if figures.schedules:
        rate = f"{figures.schedules_per_second:,.0f} in a second of processor time"
        parts.append(f"{figures.schedules:,} schedules ({rate})")
    if figures.worlds:
        states = sum(one.states for one in figures.worlds.values())
        parts.append(f"{states:,} states of {counted(len(figures.worlds), 'small world')}")
    parts.append(counted(figures.violations, "violation"))
    return f"cluster-sim: {', '.join(parts)}"
