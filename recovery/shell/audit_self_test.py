"""`ledgerstore audit --self-test`: faults planted in copies of a store, and how many of them are found.

fault                     what is damaged
planted                   how often, each time in a fresh copy
found                     of those the audit says that something is wrong there
located                   of those it says what is wrong, and exactly where; and nothing else
missed                    of those it does not
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.shell.columns import Column, Tone, numbers
from recovery.shell.exits import Exit, say
from recovery.shell.tally import counted
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from recovery.audit.faults.self_test import Score, SelfTest
    from recovery.audit.task import Engine
    from recovery.shell.columns import Row
    from recovery.shell.passwords import Passwords

_COLUMNS = [
    Column("fault"),
    numbers("planted"),
    numbers("found", rank=1),
    numbers("located"),
    numbers("missed"),
]
_MISSES_MAX = 5


def run_self_test(path: str | None, engine: Engine, passwords: Passwords, form: Form) -> Exit:
    """In a copy of the store at the path, else in small ones that are made for it."""
    from recovery.audit.faults.self_test import Trials, self_test
    from recovery.shell.demo_watch import Stage

    stage = Stage("planting")

    def show(done: int, total: int) -> None:
        if stage.is_due:
            stage.show(done / total, f"{done} of {total} faults")

    trials = Trials(engine=engine, passwords=passwords.by_ledger, password=passwords.otherwise, watch=show)
    try:
        tested = self_test(None if path is None else Path(path), trials)
    finally:
        stage.end()
    _show(tested, form)
    return Exit.CLEAN if tested.is_passed else Exit.FINDINGS


def _show(tested: SelfTest, form: Form) -> None:
    out = writer(form, _COLUMNS)
    for score in tested.scores:
        tone: Row = {"tone": Tone.BAD.value if score.missed else Tone.GOOD.value}
        out.row(_row(score) | (tone if form is Form.TABLE else {}))
    out.end()
    for miss in tested.misses[:_MISSES_MAX]:
        say(f"missed: {miss}")
    for alarm in tested.false_alarms[:_MISSES_MAX]:
        say(f"false alarm: {alarm.kind} {alarm.place} {alarm.detail}")
    say(f"planted in {tested.what}")
    say(f"self-test: {_verdict(tested)}")


def _row(score: Score) -> Row:
    return {
        "fault": score.fault.value,
        "planted": score.planted,
        "found": score.found,
        "located": score.located,
        "missed": score.missed,
    }


def _verdict(tested: SelfTest) -> str:
    located = f"{tested.located} of {counted(tested.planted, 'fault')} found where they were planted"
    alarms = counted(len(tested.false_alarms), "false alarm") if tested.false_alarms else "no false alarm"
    return f"{located}, {alarms}"
