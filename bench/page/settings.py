"""How everybody was set up, and how to run it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from page.looks import swatch
from recovery.page.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from page.run import Row, Run

_COMMANDS = (
    ("make bench", "all of it, in twenty minutes; writes .bench/bench.json and this page"),
    ("make bench-quick", "in three minutes, to see where it stands"),
    (
        "make bench-syncs",
        "counts the syncs of everybody, from outside: one for each acknowledged add or batch",
    ),
    ("python bench/store.py --list", "the names of all rows"),
    ("python bench/draw.py FILE.json PAGE.html", "draws the page of a run again"),
)


def settings(run: Run) -> Markup:
    """The peers in their own words, and each contender's settings beyond the work."""
    return tag(
        "section",
        tag("h2", "How everybody is set up"),
        tag("p", "All that is not a default.", class_="lead"),
        tag("dl", (_peer(name, said) for name, said in run.peers.items()), class_="settings"),
        tag("h3", "Beyond the work itself"),
        tag("dl", (_contender(name, found) for name, found in _beyond(run).items()), class_="settings"),
    )


def _peer(name: str, said: str) -> Markup:
    return tag("div", tag("dt", swatch(name), name), tag("dd", said))


def _contender(name: str, found: Mapping[str, list[str]]) -> Markup:
    ways = (tag("dd", said, tag("small", ", ".join(rows))) for said, rows in found.items())
    return tag("div", tag("dt", swatch(name), name), ways)


def _beyond(run: Run) -> dict[str, dict[str, list[str]]]:
    """Contender -> settings -> the scenarios that have them."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in run.rows:
        for name in row.contenders:
            if said := ", ".join(_own(row, name)):
                found.setdefault(name, {}).setdefault(said, []).append(row.result.scenario)
    return found


def _own(row: Row, name: str) -> Iterator[str]:
    said = row.contenders[name]
    for setting, value in said.get("settings", {}).items():
        if setting not in row.work and setting != "seed":
            yield f"{setting} {value:,}" if isinstance(value, int) else f"{setting} {value}"
    if said.get("one_cpu"):
        yield "on one CPU"


def again(run: Run) -> Markup:
    """The commands."""
    return tag(
        "section",
        tag("h2", "To run it again"),
        tag(
            "p", "In the folder of the project. For one row, say ", tag("code", _one(run)), ".", class_="lead"
        ),
        tag(
            "dl",
            (tag("div", tag("dt", tag("code", line)), tag("dd", why)) for line, why in _COMMANDS),
            class_="settings commands",
        ),
    )


def _one(run: Run) -> str:
    name = run.rows[0].result.scenario if run.rows else "ROW"
    return f"python bench/store.py --only {name} --html PAGE.html"
