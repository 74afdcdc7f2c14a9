"""The comparison with the list of expected results, without a JVM, and the list itself."""

from __future__ import annotations

from collections import deque

from client_tests import ClassesRun, ExpectedResults, JavaTestResult, load_expected, problems_of

EXPECTED = ExpectedResults(
    ("client.A", "client.B"), ("client.A",), {"client.A breaks": "why"}, {"client.A wavers": "why"}, {}
)


def problems(**outcomes: str) -> list[str]:
    run = ClassesRun(EXPECTED, deque())
    for test, outcome in ({"breaks": "failed"} | outcomes).items():
        run.results[f"client.A {test}"] = JavaTestResult(f"client.A {test}", "", outcome)
    return problems_of(run, ["client.A"])


def test_results_as_listed_are_no_problem() -> None:
    assert problems(works="passed") == []
    assert problems(wavers="passed") == []
    assert problems(wavers="failed") == []


def test_an_unlisted_failure_is_a_problem() -> None:
    assert [one.startswith("client.A works fails") for one in problems(works="failed")] == [True]


def test_a_listed_test_that_passes_is_a_problem() -> None:
    assert problems(breaks="passed") == ["client.A breaks is listed as failing, and has passed"]


def test_a_name_with_an_asterisk_stands_for_all_tests_that_begin_so() -> None:
    expected = EXPECTED._replace(fails={"client.A [0]*": "why"})
    run = ClassesRun(expected, deque())
    for test, outcome in (("[0] one", "failed"), ("[0] two", "passed"), ("[1] one", "failed")):
        run.results[f"client.A {test}"] = JavaTestResult(f"client.A {test}", "", outcome)
    passes, fails = problems_of(run, ["client.A"])[::-1]
    assert passes == "client.A [0] two is listed as failing, and has passed"
    assert fails.startswith("client.A [1] one fails")


def test_a_listed_test_that_does_not_exist_is_a_problem() -> None:
    run = ClassesRun(EXPECTED, deque())
    assert problems_of(run, ["client.A"]) == ["client.A breaks is listed, and does not exist"]
    assert problems_of(run, ["client.B"]) == []


def test_the_list_names_each_test_once_and_only_of_classes_that_run() -> None:
    expected = load_expected()
    listed = [*expected.fails, *expected.unsteady]
    assert len(listed) == len(set(listed))
    assert {name.partition(" ")[0] for name in listed} <= set(expected.classes)
    assert set(expected.quick) <= set(expected.classes)
    assert len(expected.classes) == len(set(expected.classes))
    assert not set(expected.classes) & set(expected.not_run)
