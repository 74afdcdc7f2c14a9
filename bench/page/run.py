"""A run as its file says it: who took part in what, every round, and how each bar has fared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from report import FORMAT
from result import Bar, Figure, Judged, Result, Sense, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Said = Mapping[str, Any]


class UnknownFormat(Exception):
    """The file was written by another version of the benchmark; the message says by which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A scenario: what was measured, and what was asked."""

    result: Result
    judged: Sequence[Judged]
    contenders: Mapping[str, Said]
    """Who was to take part, in the order of the scenario, with settings."""
    work: Said
    points: Mapping[str, float]

    @property
    def present(self) -> list[str]:
        """Who took part."""
        heard = {name for said in (*self.result.rounds, self.result.whole) for name in said}
        return [name for name in self.contenders if name in heard]

    @property
    def missing(self) -> list[str]:
        return [name for name in self.contenders if name not in self.present]

    def figures(self) -> list[str]:
        """The names of all figures that anybody has said, in the order in which they were."""
        said = [figures for lap in (*self.result.rounds, self.result.whole) for figures in lap.values()]
        return list(dict.fromkeys(name for figures in said for name in figures))

    def title(self, judged: Judged) -> str:
        """The words of one of its bars."""
        return judged.bar.title or self.result.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a file says."""

    rows: Sequence[Row]
    peers: Mapping[str, str]
    """Peer -> what is not a default."""
    effort: Said
    machine: Said
    date: str = ""
    commit: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    """Figure -> unit, as far as the bars say it."""


def load(said: Said) -> Run:
    """The run of a file that was read as JSON."""
    if said.get("format") != FORMAT:
        raise UnknownFormat(f"format {said.get('format')!r}, and this page is drawn from format {FORMAT}")
    rows = [_row(one) for one in said["scenarios"]]
    bars = [judged.bar for row in rows for judged in row.judged]
    return Run(
        rows=rows,
        peers=said["peers"],
        effort=said["effort"],
        machine=said["machine"],
        date=said.get("date", ""),
        commit=said.get("commit", ""),
        units={bar.figure.name: bar.figure.unit for bar in bars},
    )


def _row(said: Said) -> Row:
    judged = [_judged(one) for one in said["bars"]]
    result = Result(
        scenario=said["name"],
        title=said["title"],
        bars=[one.bar for one in judged],
        rounds=said["rounds"],
        whole=said["whole"],
        notes=said["notes"],
        flaws=said["flaws"],
    )
    return Row(
        result=result,
        judged=judged,
        contenders=said["contenders"],
        work=said["work"],
        points=said["points"],
    )


def _judged(said: Said) -> Judged:
    # What is judged is taken as it was: a bar must not change its verdict by being drawn.
    sense = Sense.LESS if said["better"] == "less" else Sense.MORE
    bar = Bar(
        label=said["label"],
        title=said["title"],
        figure=Figure(said["figure"], said["unit"], sense),
        subject=said["subject"],
        against=tuple(said["against"]),
        floor=said["floor"],
        aim=said["aim"],
    )
    return Judged(
        bar=bar,
        verdict=Verdict[said["verdict"].upper()],
        ours=said["ours"],
        than=said["than"],
        theirs=said["theirs"],
        values=said["values"],
    )
