"""An image has the same result alone and together with others, and each rule finds what it is for."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from recovery.crashlab.judge.oracles import Breach, ContinueAfterRecovery, FsckClean, Idempotent, NoHang
from recovery.crashlab.judge.outcome import Answered, Died, Hung, RecoveryRefused
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.profile import PROFILES
from recovery.crashlab.record.history import History, Op
from recovery.crashlab.run.image_checker import CrashImage, ImageChecker
from recovery.crashlab.run.runner import Runner
from recovery.crashlab.run.spec import make_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from recovery.crashlab.model.real_tree import Tree
    from recovery.crashlab.record.history import Ctx


# ── a store in one file ─────────────────────────────────────────────────────────────────────────────────────


def nothing(root: Path, ctx: Ctx) -> None:
    """A workload that does nothing."""


def obey(root: Path) -> dict[str, str]:
    """Do what the file says."""
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


def case(said: str, history: History | None = None) -> CrashImage:
    """Return an image whose breaches are reported as pairs."""
    files = image(said)
    lay_out = partial(real_tree.write_tree, files)
    promised = acknowledged(said) if history is None else history
    return CrashImage(real_tree.digest(files), lay_out, promised, lambda breach: (said, breach.kind))  # type: ignore[arg-type,return-value]


@pytest.fixture
def judged() -> Iterator[Callable[..., ImageChecker]]:
    """Return a checker for a store with these rules."""
    with Runner(0.3) as runner:

        def made(recover: Callable[..., object], *rules: object) -> ImageChecker:
            spec = make_spec(nothing, recover, [NoHang(0.3), *rules], PROFILES["posix-strict"], 1, "store")
            return ImageChecker(spec, runner)

        yield made


def breaches(judge: ImageChecker, cases: Sequence[CrashImage]) -> list[Any]:
    return list(judge.check(cases))


def outcome(judge: ImageChecker, one: CrashImage) -> object:
    return judge.of(one.image, one.lay_out).outcome


# ── alone, and with others ──────────────────────────────────────────────────────────────────────────────────

MIXED = ["a", "die 1", "b", "hang 1", "exit 1", "c", "raise 1", "leave 1", "d", "die 2", "die 3"]


@pytest.mark.slow
def test_each_of_many_images_has_the_same_outcome_as_alone(judged: Callable[..., ImageChecker]) -> None:
    cases = [case(said) for said in MIXED]
    together, alone = judged(obey), judged(obey)

    list(together.check(cases))

    assert [outcome(together, one) for one in cases] == [outcome(alone, one) for one in cases]
    kinds = {said: type(outcome(together, case(said))) for said in MIXED}
    assert kinds == dict.fromkeys("abcd", Answered) | {
        **dict.fromkeys(["die 1", "die 2", "die 3"], Died),
        "hang 1": Hung,
        **dict.fromkeys(["exit 1", "raise 1", "leave 1"], RecoveryRefused),
    }


@pytest.mark.slow
def test_each_breach_of_many_images_is_reported_once(judged: Callable[..., ImageChecker]) -> None:
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
def test_a_batch_may_be_as_short_as_it_likes(judged: Callable[..., ImageChecker], said: list[str]) -> None:
    kinds = [(one, {"die": "SIGNAL", "hang": "HANG"}[one]) for one in said if one != "a"]

    assert breaches(judged(obey), [case(one) for one in said]) == kinds


def test_an_image_is_recovered_once_and_checked_against_every_history(
    judged: Callable[..., ImageChecker], tmp_path: Path
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
    """A recovery that mixes up stores that were opened in one process."""
    _seen.append((root / "file").read_text())
    return {"said": _seen[0]}


def test_a_breach_that_shows_only_beside_other_images_is_not_reported(
    judged: Callable[..., ImageChecker],
) -> None:
    assert breaches(judged(remembering), [case(said) for said in "abc"]) == []


def test_an_answer_that_cannot_be_pickled_is_a_refusal_of_that_image_only(
    judged: Callable[..., ImageChecker],
) -> None:
    def unsendable(root: Path) -> object:
        said = (root / "file").read_text()
        return {"said": said} if said == "a" else {"said": (one for one in said)}

    assert breaches(judged(unsendable), [case(said) for said in "abac"]) == [
        ("b", "REFUSED"),
        ("c", "REFUSED"),
    ]


def test_a_store_may_not_see_the_files_of_another(judged: Callable[..., ImageChecker]) -> None:
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
    """A recovery that shows something else each time."""
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
    judged: Callable[..., ImageChecker], recover: Callable[..., object], kind: str | None
) -> None:
    expected = [(said, kind) for said in "ab" if kind]

    assert breaches(judged(recover), [case(said) for said in "ab"]) == []
    assert breaches(judged(recover, Idempotent(every=1)), [case(said) for said in "ab"]) == expected


def test_a_recovery_that_differs_at_the_third_time_is_found(
    judged: Callable[..., ImageChecker],
) -> None:
    def thrice(root: Path) -> dict[str, str]:
        with (root / "times").open("a") as file:
            file.write("x")
        return {"said": "a" if (root / "times").stat().st_size < 3 else "b"}

    assert breaches(judged(thrice, Idempotent(1, every=1)), [case("a")]) == []
    assert breaches(judged(thrice, Idempotent(2, every=1)), [case("a")]) == [("a", "DIFFERS")]


def lines(root: Path) -> dict[str, str]:
    """Return every line of the file, as a key and its value."""
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


@pytest.mark.sampled(one_of=2)
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
def test_a_store_that_does_not_work_after_a_recovery_is_found(
    judged: Callable[..., ImageChecker],
    go_on: Callable[..., None],
    kinds: set[str],
    was_acknowledged: bool,
) -> None:
    before = History((Op("add", ("k", "1"), 0, *([1] if was_acknowledged else [])),))
    rule = ContinueAfterRecovery(go_on, every=1)

    assert breaches(judged(lines), [case("k=1\n", before)]) == []
    assert {kind for _, kind in breaches(judged(lines, rule), [case("k=1\n", before)])} == kinds


@pytest.mark.slow
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
def test_findings_of_the_store_s_own_verifier_are_reported(
    judged: Callable[..., ImageChecker], verify: Callable[..., Any], told_of: list[Any]
) -> None:
    assert breaches(judged(told, FsckClean(verify, every=1)), [case("a")]) == told_of
    # The same with two images in one child.
    assert breaches(judged(told, FsckClean(verify, every=1)), [case("a"), case("b")])[:1] == told_of


@pytest.mark.slow
def test_a_sampled_rule_applies_to_the_same_images_each_time(
    judged: Callable[..., ImageChecker],
) -> None:
    cases = [case(f"{number}") for number in range(40)]
    rule = Idempotent(every=4)

    first, second = (breaches(judged(shifting, rule), cases) for _ in range(2))

    assert first == second
    assert 2 < len(first) < 20
    assert {Breach(kind, said) for said, kind in first} == {Breach("DIFFERS", said) for said, _ in first}
