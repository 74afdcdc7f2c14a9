"""What comes of an image is the same alone and in the company of others; the rules find what they ask for."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from recovery.crashlab import tree
from recovery.crashlab.history import History, Op
from recovery.crashlab.judge import Case, Judge
from recovery.crashlab.oracles import (
    Breach,
    ContinueAfterRecovery,
    FsckClean,
    Idempotent,
    NoHang,
)
from recovery.crashlab.outcome import Answered, Died, Hung, Refused
from recovery.crashlab.profile import PROFILES
from recovery.crashlab.running import Runner
from recovery.crashlab.spec import specify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from recovery.crashlab.history import Ctx
    from recovery.crashlab.tree import Tree


# ── a store that is one file ────────────────────────────────────────────────────────────────────────────────


def nothing(root: Path, ctx: Ctx) -> None:
    """A workload."""


def obey(root: Path) -> dict[str, str]:
    """Does what its file says."""
    said = (root / "file").read_text()
    match said.split(" ")[0]:
        case "die":
            os.kill(os.getpid(), signal.SIGUSR1)
        case "hang":
            signal.pause()
        case "exit":
            os._exit(3)
        case "leave":
            raise SystemExit(4)
        case "raise":
            raise LookupError("on purpose")
    return {"said": said}


def told(root: Path) -> dict[str, str]:
    return {"said": (root / "file").read_text()}


def image(said: str) -> Tree:
    return {"file": said.encode()}


def acknowledged(*said: str) -> History:
    return History(tuple(Op("add", ("said", one), 2 * at, 2 * at + 1) for at, one in enumerate(said)))


def case(said: str, history: History | None = None) -> Case:
    """One that tells of a breach as a pair."""
    files = image(said)
    lay_out = partial(tree.write_tree, files)
    promised = acknowledged(said) if history is None else history
    return Case(tree.digest(files), lay_out, promised, lambda breach: (said, breach.kind))  # type: ignore[arg-type,return-value]


@pytest.fixture
def judged() -> Iterator[Callable[..., Judge]]:
    """A judge of a store with these rules."""
    with Runner(0.3) as runner:

        def made(recover: Callable[..., object], *rules: object) -> Judge:
            spec = specify(nothing, recover, [NoHang(0.3), *rules], PROFILES["posix-strict"], 1, "store")
            return Judge(spec, runner)

        yield made


def breaches(judge: Judge, cases: Sequence[Case]) -> list[Any]:
    return list(judge.check(cases))


def outcome(judge: Judge, one: Case) -> object:
    return judge.of(one.image, one.lay_out).outcome


# ── alone, and with others ──────────────────────────────────────────────────────────────────────────────────

MIXED = ["a", "die 1", "b", "hang 1", "exit 1", "c", "raise 1", "leave 1", "d", "die 2", "die 3"]


def test_of_many_images_each_has_the_outcome_that_it_has_alone(judged: Callable[..., Judge]) -> None:
    cases = [case(said) for said in MIXED]
    together, alone = judged(obey), judged(obey)

    list(together.check(cases))

    assert [outcome(together, one) for one in cases] == [outcome(alone, one) for one in cases]
    kinds = {said: type(outcome(together, case(said))) for said in MIXED}
    assert kinds == dict.fromkeys("abcd", Answered) | {
        **dict.fromkeys(["die 1", "die 2", "die 3"], Died),
        "hang 1": Hung,
        **dict.fromkeys(["exit 1", "raise 1", "leave 1"], Refused),
    }


def test_of_many_images_each_breach_is_told_once(judged: Callable[..., Judge]) -> None:
    assert breaches(judged(obey), [case(said) for said in MIXED]) == [
        ("die 1", "SIGNAL"),
        ("hang 1", "HANG"),
        ("exit 1", "REFUSED"),
        ("raise 1", "REFUSED"),
        ("leave 1", "REFUSED"),
        ("die 2", "SIGNAL"),
        ("die 3", "SIGNAL"),
    ]


@pytest.mark.parametrize("said", [["die"], ["hang"], ["die", "a"], ["a", "hang"], []])
def test_a_batch_may_be_as_short_as_it_likes(judged: Callable[..., Judge], said: list[str]) -> None:
    kinds = [(one, {"die": "SIGNAL", "hang": "HANG"}[one]) for one in said if one != "a"]

    assert breaches(judged(obey), [case(one) for one in said]) == kinds


def test_an_image_is_recovered_once_and_held_against_every_history(
    judged: Callable[..., Judge], tmp_path: Path
) -> None:
    def counting(root: Path) -> dict[str, str]:
        with (tmp_path / "count").open("a") as file:
            file.write("x")
        return told(root)

    judge = judged(counting)
    same = [case("new", acknowledged("new")), case("new", acknowledged("old")), case("new", History())]

    assert breaches(judge, same[:1]) == []
    assert breaches(judge, same) == [("new", "FABRICATED"), ("new", "FABRICATED")]
    assert (tmp_path / "count").stat().st_size == 1


_seen: list[str] = []


def remembering(root: Path) -> dict[str, str]:
    """Mixes up stores that were opened in one process."""
    _seen.append((root / "file").read_text())
    return {"said": _seen[0]}


def test_what_goes_wrong_only_in_company_is_not_told(judged: Callable[..., Judge]) -> None:
    assert breaches(judged(remembering), [case(said) for said in "abc"]) == []


def test_an_answer_that_cannot_be_sent_is_a_refusal_of_that_one_alone(judged: Callable[..., Judge]) -> None:
    def unsendable(root: Path) -> object:
        said = (root / "file").read_text()
        return {"said": said} if said == "a" else {"said": (one for one in said)}

    assert breaches(judged(unsendable), [case(said) for said in "abac"]) == [
        ("b", "REFUSED"),
        ("c", "REFUSED"),
    ]


def test_a_store_may_not_see_the_files_of_another(judged: Callable[..., Judge]) -> None:
    def wiping(root: Path) -> dict[str, str]:
        shown = told(root)
        (root / "file").unlink()
        return shown

    judge = judged(wiping)
    cases = [case(said) for said in "abc"]
    assert breaches(judge, cases) == []
    assert judge.breaches_of(cases[0].image, cases[0].lay_out, acknowledged("a")) == []


# ── rules over more than one recovery ───────────────────────────────────────────────────────────────────────


def shifting(root: Path) -> dict[str, str]:
    """Shows something else each time."""
    shown = told(root)
    (root / "file").write_text(shown["said"] + "!")
    return shown


def second_refuses(root: Path) -> dict[str, str]:
    shown = told(root)
    (root / "file").unlink()
    return shown


@pytest.mark.parametrize(
    ("recover", "kind"), [(told, None), (shifting, "DIFFERS"), (second_refuses, "REFUSED")]
)
def test_a_recovery_that_does_not_repeat_itself_is_found(
    judged: Callable[..., Judge], recover: Callable[..., object], kind: str | None
) -> None:
    expected = [(said, kind) for said in "ab" if kind]

    assert breaches(judged(recover), [case(said) for said in "ab"]) == []
    assert breaches(judged(recover, Idempotent(every=1)), [case(said) for said in "ab"]) == expected


def test_a_recovery_that_changes_its_mind_at_the_third_time_is_found(judged: Callable[..., Judge]) -> None:
    def thrice(root: Path) -> dict[str, str]:
        with (root / "times").open("a") as file:
            file.write("x")
        return {"said": "a" if (root / "times").stat().st_size < 3 else "b"}

    assert breaches(judged(thrice, Idempotent(1, every=1)), [case("a")]) == []
    assert breaches(judged(thrice, Idempotent(2, every=1)), [case("a")]) == [("a", "DIFFERS")]


def lines(root: Path) -> dict[str, str]:
    """Every line of the file: a key, and its value."""
    return dict(line.split("=") for line in (root / "file").read_text().splitlines())


def add(root: Path, ctx: Ctx, line: str = "more=1") -> None:
    with ctx.doing("add", *line.split("=")), (root / "file").open("a") as file:
        file.write(f"{line}\n")


def add_nowhere(root: Path, ctx: Ctx) -> None:
    with ctx.doing("add", "more", "1"):
        pass


def add_over_everything(root: Path, ctx: Ctx) -> None:
    with ctx.doing("add", "more", "1"):
        (root / "file").write_text("more=1\n")


def change_what_is_there(root: Path, ctx: Ctx) -> None:
    add(root, ctx, "k=2")


def change_it_with_others(root: Path, ctx: Ctx) -> None:
    with ctx.doing("add_all", "s", ((("k",), "2"), (("l",), "2"))):
        (root / "file").write_text("k=2\nl=2\n")


def delete_what_is_there(root: Path, ctx: Ctx) -> None:
    with ctx.doing("delete", "k"):
        (root / "file").write_text("")


def break_it(root: Path, ctx: Ctx) -> None:
    (root / "file").write_text("no line")


def fail_to(root: Path, ctx: Ctx) -> None:
    raise OSError("no more")


@pytest.mark.parametrize(
    ("go_on", "kinds"),
    [
        (add, set()),
        (change_what_is_there, set()),
        (change_it_with_others, set()),
        (delete_what_is_there, set()),
        (add_nowhere, {"LOST"}),
        (add_over_everything, {"LOST"}),
        (break_it, {"REFUSED"}),
        (fail_to, {"REFUSED"}),
    ],
)
@pytest.mark.parametrize("was_acknowledged", [True, False], ids=["acknowledged", "only shown"])
def test_a_store_that_does_not_work_on_behind_a_recovery_is_found(
    judged: Callable[..., Judge],
    go_on: Callable[..., None],
    kinds: set[str],
    was_acknowledged: bool,
) -> None:
    before = History((Op("add", ("k", "1"), 0, *([1] if was_acknowledged else [])),))
    rule = ContinueAfterRecovery(go_on, every=1)

    assert breaches(judged(lines), [case("k=1\n", before)]) == []
    assert {kind for _, kind in breaches(judged(lines, rule), [case("k=1\n", before)])} == kinds


@pytest.mark.parametrize(
    ("verify", "told_of"),
    [
        (lambda _: [], []),
        (lambda _: None, []),
        (lambda _: iter(()), []),
        (lambda _: "page 3", [("a", "UNSOUND")]),
        (lambda _: ["page 3", "page 4"], [("a", "UNSOUND")]),
        (lambda _: iter(["page 3"]), [("a", "UNSOUND")]),
        (lambda _: int("x"), [("a", "REFUSED")]),
    ],
)
def test_what_the_store_s_own_verifier_finds_is_told(
    judged: Callable[..., Judge], verify: Callable[..., Any], told_of: list[Any]
) -> None:
    assert breaches(judged(told, FsckClean(verify, every=1)), [case("a")]) == told_of
    # The same of two in one child.
    assert breaches(judged(told, FsckClean(verify, every=1)), [case("a"), case("b")])[:1] == told_of


def test_a_rule_that_is_tried_now_and_then_is_tried_on_the_same_images_each_time(
    judged: Callable[..., Judge],
) -> None:
    cases = [case(f"{number}") for number in range(40)]
    rule = Idempotent(every=4)

    first, second = (breaches(judged(shifting, rule), cases) for _ in range(2))

    assert first == second
    assert 2 < len(first) < 20
    assert {Breach(kind, said) for said, kind in first} == {Breach("DIFFERS", said) for said, _ in first}
