"""The Grafana dashboard that is shipped asks for metrics that a bookie has, with labels that they have."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from storage.cluster.bookie.metrics import BookieFigures, OperationFigures, bookie_metrics
from storage.cluster.bookie.server import ServerLoad
from storage.cluster.bookie.traffic import RequestKind
from storage.cluster.metadata.registration import BookieMode
from storage.cluster.wire.codes import Code
from storage.latencies import Latencies
from storage.metrics import STORE_METRICS
from storage.prometheus import text

DASHBOARD = json.loads(files("ledgerstore").joinpath("share/grafana/bookies.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
_METRIC = re.compile(r"\b((?:bookie|bookkeeper|ledgerstore|process)_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)(=~|=|!=)\"([^\"]*)\"")


@pytest.fixture(scope="module")
def shown() -> dict[str, list[dict[str, str]]]:
    """The labels of all samples of a bookie, by name."""
    latencies = Latencies()
    latencies.note(0.001, 0.0)
    summary = latencies.summary(0.0)
    operations = {one: OperationFigures(summary, summary, {Code.FENCED: 1}) for one in RequestKind}
    load = ServerLoad(1, 2, 3)
    figures = BookieFigures("b", "1", BookieMode.WRITABLE, True, load, 2, 1, 0, operations, 0, 0, summary)
    found: dict[str, list[dict[str, str]]] = {one.metric.name: [dict(one.labels)] for one in STORE_METRICS}
    for family in text_string_to_metric_families(text(bookie_metrics(figures)).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_expression_selects_a_sample_of_a_bookie(
    expression: str, shown: dict[str, list[dict[str, str]]]
) -> None:
    selectors = _METRIC.findall(expression)
    assert selectors
    for name, matchers in selectors:
        assert name in shown, name
        wanted = [one for one in _MATCHER.findall(matchers) if one[0] != "instance"]
        assert any(all(_matches(labels, one) for one in wanted) for labels in shown[name]), expression


def _matches(labels: dict[str, str], matcher: tuple[str, str, str]) -> bool:
    label, sign, value = matcher
    return label in labels and (labels[label] == value) == (sign == "=")


def test_each_panel_has_its_own_id_and_place() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len({panel["id"] for panel in panels}) == len(places) == len(panels)
