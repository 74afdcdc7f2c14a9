"""docs/metadata.md: its nodes are those of a cluster, byte by byte, and its tables are those of the code."""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_loops import run_with_server
from example_cluster import make, nodes_of

from recovery.shell.commands.metadata import MetadataGroup
from recovery.shell.main import ALIASES
from storage.cluster.metadata.cookies import TABLE, CookieDecision

if TYPE_CHECKING:
    from memory_znodes import MemoryServer

PAGE = (Path(__file__).parents[2] / "docs" / "metadata.md").read_text(encoding="utf-8")


def shown_nodes() -> dict[str, tuple[str, bytes]]:
    """Return the nodes of the page: path, kind and data."""
    found: dict[str, tuple[str, bytes]] = {}
    path = ""
    for block in re.findall(r"<!-- nodes -->\n```\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("/"):
                path, kind = line.split()
                assert path not in found, path
                found[path] = (kind, b"")
            else:
                kind, data = found[path]
                found[path] = (kind, data + _data_of(line.strip()))
    return found


def _data_of(line: str) -> bytes:
    if line.startswith('"'):
        text = literal_eval(line)
        assert isinstance(text, str)
        return text.encode()
    return bytes.fromhex(line.partition("  ")[0])


def test_the_page_shows_every_node_of_a_cluster_with_its_bytes() -> None:
    async def test(server: MemoryServer) -> None:
        await make(server.session())
        assert shown_nodes() == nodes_of(server)

    run_with_server(test)


def test_the_page_has_every_decision_about_cookies() -> None:
    [table] = re.findall(r"<!-- table: cookies -->\n(.*?)\n\n", PAGE, re.DOTALL)
    rows = [line.split("|")[3].strip() for line in table.splitlines()[2:]]
    starts = {
        "writes it to the directories": 0,
        "writes it to the metadata": 0,
        "starts": 0,
        "does not start": 0,
    }
    for row in rows:
        starts[next(words for words in starts if row.startswith(words))] += 1
    decisions = [rule.decision for rule in TABLE]
    assert starts == {
        "writes it to the directories": decisions.count(CookieDecision.STAMP_ALL),
        "writes it to the metadata": decisions.count(CookieDecision.STAMP_METADATA),
        "starts": decisions.count(CookieDecision.START),
        "does not start": decisions.count(CookieDecision.REFUSE),
    }


def test_the_page_names_every_command_and_bookkeeper_s_name_for_it() -> None:
    for command in MetadataGroup.entries:
        assert re.search(rf"\| `ledgerstore metadata [^|]*\b{command}\b", PAGE), command
    for alias, words in ALIASES.items():
        if words[0] in ("metadata", "cluster") or alias in ("listledgers", "ledgermetadata"):
            [line] = [
                line
                for line in PAGE.splitlines()
                if f"`{alias}`" in line and line.startswith("| `ledgerstore")
            ]
            assert f"ledgerstore {' '.join(words)} " in line


def test_every_link_of_the_page_leads_to_a_file() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / target).exists(), target
