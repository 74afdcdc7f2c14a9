"""docs/bookie.md: all metrics, all known keys of a configuration file, the commands of a cluster."""

from __future__ import annotations

import re
from pathlib import Path

from recovery.local_cluster.state import ClusterRequest, planned
from recovery.shell import local_cluster
from recovery.shell.commands.cluster import ClusterGroup
from storage.cluster.bookie import config
from storage.cluster.bookie.metrics import BOOKIE_METRICS
from storage.metrics import STORE_METRICS, Metric, MetricKind

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "bookie.md").read_text(encoding="utf-8")
OF_METADATA = (DOCS / "metadata.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(?P<name>\w+)` \| (?P<kind>counter|gauge|summary) \| (?P<meaning>.+) \|$", re.MULTILINE
)


def test_the_tables_have_every_metric_in_order_and_no_other() -> None:
    listed = [Metric(row["name"], MetricKind(row["kind"]), row["meaning"]) for row in ROW.finditer(PAGE)]
    assert listed == [*BOOKIE_METRICS, *(one.metric for one in STORE_METRICS)]


def test_every_command_for_a_cluster_is_in_a_table() -> None:
    for command in ClusterGroup.entries:
        page = OF_METADATA if command == "init" else PAGE
        assert re.search(rf"\| `ledgerstore cluster [^|]*\b{command}\b", page), command


def test_the_shown_cluster_has_the_columns_members_and_hints_of_a_new_one() -> None:
    [shown] = re.findall(r"<!-- shown: up -->\n```console\n(.*?)```", PAGE, re.DOTALL)
    command, heading, *lines, verdict = shown.splitlines()
    assert command == "$ ledgerstore cluster up"
    assert heading.split() == [column.name for column in local_cluster.COLUMNS]
    state = planned(None, ClusterRequest(), iter(()))
    members, hints = lines[: len(state.members)], lines[len(state.members) :]
    assert [(line.split()[0], line.split()[3]) for line in members] == [
        (member.name, f"127.0.0.1:{member.port}") for member in state.members
    ]
    assert hints == [f"{word:10}{text}" for word, text in local_cluster.hints(state, ".", "Ctrl-C")]
    assert re.fullmatch(r"cluster up: 4 of 4 processes up after \d\.\d s", verdict)


def keys_after(heading: str) -> list[str]:
    """Return the keys of the first table after this line."""
    rows = PAGE.split(heading, 1)[1].split("\n\n")[1]
    return re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)


def test_the_page_lists_each_key_of_a_configuration_file_that_is_honoured() -> None:
    assert sorted(keys_after("These say how the bookie runs:")) == sorted(config.HONOURED)


def test_the_page_lists_each_key_that_is_refused() -> None:
    assert sorted(keys_after("less safe than its author thinks:")) == sorted(
        {*config.DANGEROUS, config.CIPHERS}
    )
