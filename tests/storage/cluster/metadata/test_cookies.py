"""Whether a bookie may start: the whole table, what the directories say, and cookies in the metadata."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from cluster_loops import run
from fixtures import FIXTURES
from memory_znodes import Loss

from storage.cluster.errors import CookieRefused, InvalidMetadata, MetadataConflict
from storage.cluster.metadata.cookies import (
    TABLE,
    CookieDecision,
    CookieFacts,
    DirectoryContent,
    Instance,
    Ledgers,
    Local,
    Stored,
    check_cookies,
    cookie_path,
    decide,
    delete_cookie,
    differences,
    encode_cookie,
    list_cookies,
    local_fact,
    read_cookie,
    write_cookie,
)
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Gone
from storage.disk.cookie_format import Cookie

if TYPE_CHECKING:
    from memory_znodes import MemoryZnodes

OURS = Cookie("bk1", ("/data/j",), ("/data/l",), "5b2e")
ALL_FACTS = [CookieFacts(*facts) for facts in product(Local, Stored, Instance, Ledgers)]


def expected_decision(facts: CookieFacts) -> CookieDecision:
    """The rules of a start in words of their own, without the table."""
    is_new = facts.stored is Stored.NONE and facts.local is Local.EMPTY
    if is_new:
        return CookieDecision.STAMP_ALL
    if facts.local is not Local.OURS:
        return CookieDecision.REFUSE
    if facts.stored is Stored.OURS:
        return CookieDecision.START
    was_interrupted = facts.stored is Stored.NONE and facts.ledgers is Ledgers.NONE
    if was_interrupted and facts.instance is Instance.KNOWN:
        return CookieDecision.STAMP_METADATA
    return CookieDecision.REFUSE


@pytest.mark.parametrize(
    "facts",
    ALL_FACTS,
    ids=lambda facts: f"{facts.local.name}-{facts.stored.name}-{facts.instance.name}-{facts.ledgers.name}",
)
def test_the_table_decides_every_combination_as_the_rules_say(facts: CookieFacts) -> None:
    assert decide(facts).decision is expected_decision(facts)


def test_there_are_as_many_combinations_as_facts_and_every_rule_is_used() -> None:
    assert len(ALL_FACTS) == 5 * 4 * 2 * 2
    assert {id(decide(facts)) for facts in ALL_FACTS} == {id(rule) for rule in TABLE}


def test_a_bookie_with_ledgers_never_starts_without_its_cookie_everywhere() -> None:
    for facts in ALL_FACTS:
        if facts.ledgers is Ledgers.SOME and facts.local is not Local.EMPTY:
            starts = decide(facts).decision is not CookieDecision.REFUSE
            assert starts == (facts.local is Local.OURS and facts.stored is Stored.OURS)


# ── what the directories say ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("directories", "fact"),
    [
        ([("a", None, ()), ("b", None, ())], Local.EMPTY),
        ([("a", None, ()), ("b", None, ("0.log",))], Local.UNKNOWN_FILES),
        ([("a", OURS, ("0.log",)), ("b", None, ())], Local.PARTIAL),
        ([("a", OURS, ()), ("b", OURS, ())], Local.OURS),
        ([("a", OURS, ()), ("b", replace(OURS, instance_id="other"), ())], Local.DIFFERENT),
        ([("a", replace(OURS, bookie_host="bk2"), ()), ("b", None, ())], Local.DIFFERENT),
        ([("a", replace(OURS, store_id="00" * 16, index_directories=("/data/l",)), ())], Local.OURS),
    ],
)
def test_the_directories_say(
    directories: list[tuple[str, Cookie | None, tuple[str, ...]]], fact: Local
) -> None:
    assert local_fact([DirectoryContent(*one) for one in directories], OURS) is fact


def test_cookies_are_compared_field_by_field() -> None:
    other = Cookie("bk2", ("/x",), ("/y", "/z"), "77", ("/i",))
    assert list(differences(other, OURS)) == [
        "bookieHost is bk2, and should be bk1",
        "journalDir is /x, and should be /data/j",
        "ledgerDirs is /y, /z, and should be /data/l",
        "instanceId is 77, and should be 5b2e",
        "indexDirs is /i, and should be /data/l",
    ]


# ── in the metadata ───────────────────────────────────────────────────────────────────────────────────────


def test_a_cookie_is_written_as_a_real_bookie_writes_it() -> None:
    dump = (FIXTURES / "wire/zk-after-clients.txt").read_text()
    cookie = Cookie(
        "bk1", ("/data/bk1/j",), ("/data/bk1/l",), "dbb9caa0-7082-4059-a307-ed1d8c4f2257", ("/data/bk1/l",)
    )
    assert str(encode_cookie(cookie)) in dump
    assert encode_cookie(replace(cookie, store_id="00" * 16)) == encode_cookie(cookie)


@pytest.mark.parametrize("loss", [None, *Loss])
def test_a_cookie_is_written_read_listed_and_removed(loss: Loss | None) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, "/ledgers/cookies")
        if loss is not None:
            znodes.lose(loss)
        await write_cookie(znodes, "/ledgers", "bk1", OURS)
        await write_cookie(znodes, "/ledgers", "bk1", OURS)
        found = await read_cookie(znodes, "/ledgers", "bk1")
        assert not isinstance(found, Gone)
        assert (found.value, found.version) == (OURS, 0)
        assert await list_cookies(znodes, "/ledgers") == ("bk1",)
        with pytest.raises(MetadataConflict, match="another cookie"):
            await write_cookie(znodes, "/ledgers", "bk1", replace(OURS, instance_id="x"))
        await delete_cookie(znodes, "/ledgers", "bk1")
        assert await read_cookie(znodes, "/ledgers", "bk1") == Gone()

    run(test)


def test_junk_in_a_cookie_s_node_is_named_with_its_path() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, cookie_path("/ledgers", "bk1"), b"junk")
        with pytest.raises(InvalidMetadata, match="/ledgers/cookies/bk1: no cookie"):
            await read_cookie(znodes, "/ledgers", "bk1")

    run(test)


def test_a_life_of_a_bookie() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        async def check(
            ledgers: Ledgers, *directories: DirectoryContent, host: str = "bk1"
        ) -> CookieDecision:
            names = (host, "10.0.0.1:3181") if host == "bk1" else (host, "bk1")
            return await check_cookies(
                znodes, "/ledgers", names, replace(OURS, bookie_host=host), directories, ledgers
            )

        empty, stamped = DirectoryContent("l", None), DirectoryContent("l", OURS, ("0.log",))
        assert await check(Ledgers.NONE, empty) is CookieDecision.STAMP_ALL
        # The process ends between the directories and the metadata.
        assert await check(Ledgers.NONE, stamped) is CookieDecision.STAMP_METADATA
        await write_cookie(znodes, "/ledgers", "bk1", OURS)
        assert await check(Ledgers.SOME, stamped) is CookieDecision.START
        with pytest.raises(CookieRefused, match="the entries that it has acknowledged are lost"):
            await check(Ledgers.NONE, empty)
        with pytest.raises(CookieRefused, match=r"emptied or replaced.*\(m has no cookie\)"):
            await check(Ledgers.SOME, stamped, DirectoryContent("m", None))
        with pytest.raises(CookieRefused, match=r"l has no cookie, and has 0\.log"):
            await check(Ledgers.NONE, DirectoryContent("l", None, ("0.log",)))
        # A changed name does not look like a new bookie.
        with pytest.raises(CookieRefused, match=r"under another name.*\(known as bk1\)"):
            await check(Ledgers.NONE, empty, host="bk9")
        await delete_cookie(znodes, "/ledgers", "bk1")
        with pytest.raises(CookieRefused, match="ledgerstore cookie create"):
            await check(Ledgers.SOME, stamped)

    run(test)


def test_a_difference_that_several_places_have_is_named_once() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        moved = replace(OURS, journal_directories=("/x",))
        await write_cookie(znodes, "/ledgers", "bk1", moved)
        places = [DirectoryContent("j", moved), DirectoryContent("l", moved)]
        with pytest.raises(CookieRefused, match="or was moved") as refused:
            await check_cookies(znodes, "/ledgers", ("bk1",), OURS, places, Ledgers.SOME)
        assert "(j, l, metadata: journalDir is /x, and should be /data/j)" in str(refused.value)

    run(test)


def test_a_directory_of_another_cluster_is_refused_field_by_field() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        foreign = DirectoryContent("l", replace(OURS, instance_id="77"))
        with pytest.raises(CookieRefused, match="l: instanceId is 77, and should be 5b2e") as refused:
            await check_cookies(znodes, "/ledgers", ("bk1",), OURS, [foreign], Ledgers.SOME)
        assert refused.value.bookie_id == "bk1"
        await write_cookie(znodes, "/ledgers", "bk1", replace(OURS, journal_directories=("/x",)))
        with pytest.raises(CookieRefused, match="metadata: journalDir is /x, and should be /data/j"):
            await check_cookies(
                znodes, "/ledgers", ("bk1",), OURS, [DirectoryContent("l", OURS)], Ledgers.SOME
            )

    run(test)
