"""Cookies: which bookie and cluster a directory belongs to, in the directory and in the metadata.

A bookie that has lost its disk would answer "no such entry" for entries that were acknowledged, and a
recovery would then close ledgers too early. So a bookie starts only if the cookie in each of its
directories and the one at `cookies/<bookie id>` are the same. The table below decides for every
combination; `decide` takes the first rule that fits. A cookie is written to the directories first, then to
the metadata.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage.cluster.errors import CookieRefused, InvalidMetadata, MetadataConflict
from storage.cluster.metadata.paths import COOKIES
from storage.cluster.metadata.update import Versioned, create_node, delete_node
from storage.cluster.metadata.znodes import Created, Gone
from storage.disk import cookie_format
from storage.disk.cookie_format import Cookie

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.cluster.metadata.znodes import Znodes

# ── the decision ──────────────────────────────────────────────────────────────────────────────────────────


class Local(enum.Enum):
    """The fact about the cookies in the directories of the bookie."""

    EMPTY = "no directory has a cookie, and all are empty"
    UNKNOWN_FILES = "no directory has a cookie, and not all are empty"
    PARTIAL = "some directories have a cookie and some have none"
    DIFFERENT = "a directory has another cookie than this bookie's"
    OURS = "every directory has this bookie's cookie"


class Stored(enum.Enum):
    """The fact about the cookie in the metadata."""

    NONE = "there is no cookie of this bookie"
    OTHER_ID = "there is a cookie under another of the bookie's names"
    DIFFERENT = "there is another cookie than this bookie's"
    OURS = "there is this bookie's cookie"


class Instance(enum.Enum):
    """Whether the cluster has an id, by which it can be told from another one."""

    KNOWN = "INSTANCEID is there"
    MISSING = "INSTANCEID is missing"


class Ledgers(enum.Enum):
    """Whether the store of the bookie holds ledgers."""

    NONE = "no ledger"
    SOME = "ledgers"


class CookieDecision(enum.Enum):
    """The action of the bookie at its start."""

    START = "start"
    STAMP_ALL = "write the cookie to the directories, then to the metadata, and start"
    STAMP_METADATA = "write the cookie to the metadata, and start"
    REFUSE = "do not start"


@dataclass(frozen=True, slots=True)
class CookieFacts:
    """The facts that decide."""

    local: Local
    stored: Stored
    instance: Instance
    ledgers: Ledgers


@dataclass(frozen=True, slots=True)
class CookieRule:
    """One line of the table: the values of each fact that it is for, the decision, and why."""

    decision: CookieDecision
    why: str
    local: frozenset[Local] = frozenset(Local)
    stored: frozenset[Stored] = frozenset(Stored)
    instances: frozenset[Instance] = frozenset(Instance)
    ledgers: frozenset[Ledgers] = frozenset(Ledgers)

    def fits(self, facts: CookieFacts) -> bool:
        return (
            facts.local in self.local
            and facts.stored in self.stored
            and facts.instance in self.instances
            and facts.ledgers in self.ledgers
        )


_NOT_STORED = frozenset({Stored.NONE})

TABLE: tuple[CookieRule, ...] = (
    CookieRule(
        CookieDecision.REFUSE,
        "a directory belongs to another bookie or cluster, or was moved",
        local=frozenset({Local.DIFFERENT}),
    ),
    CookieRule(
        CookieDecision.REFUSE,
        "one of the directories was emptied or replaced, so entries may be missing",
        local=frozenset({Local.PARTIAL}),
    ),
    CookieRule(
        CookieDecision.REFUSE,
        "the bookie was in this cluster under another name; give it that name with --bookie-id",
        stored=frozenset({Stored.OTHER_ID}),
    ),
    CookieRule(
        CookieDecision.START,
        "directories and metadata agree",
        local=frozenset({Local.OURS}),
        stored=frozenset({Stored.OURS}),
    ),
    CookieRule(
        CookieDecision.REFUSE,
        "the metadata has another cookie than the directories",
        local=frozenset({Local.OURS}),
        stored=frozenset({Stored.DIFFERENT}),
    ),
    CookieRule(
        CookieDecision.STAMP_METADATA,
        "an earlier start was interrupted between the directories and the metadata",
        local=frozenset({Local.OURS}),
        stored=_NOT_STORED,
        instances=frozenset({Instance.KNOWN}),
        ledgers=frozenset({Ledgers.NONE}),
    ),
    CookieRule(
        CookieDecision.REFUSE,
        "the metadata has no cookie of a bookie that holds ledgers, or cannot be told from that of another"
        " cluster; if it is the right cluster: ledgerstore cookie create",
        local=frozenset({Local.OURS}),
        stored=_NOT_STORED,
    ),
    CookieRule(
        CookieDecision.STAMP_ALL,
        "a new bookie",
        local=frozenset({Local.EMPTY}),
        stored=_NOT_STORED,
    ),
    CookieRule(
        CookieDecision.REFUSE,
        "the directories have files and no cookie, so it is not known whose they are",
        local=frozenset({Local.UNKNOWN_FILES}),
        stored=_NOT_STORED,
    ),
    CookieRule(
        CookieDecision.REFUSE,
        "the cluster knows this bookie, and its directories have no cookie: the entries that it has"
        " acknowledged are lost",
        local=frozenset({Local.EMPTY, Local.UNKNOWN_FILES}),
        stored=frozenset({Stored.OURS, Stored.DIFFERENT}),
    ),
)
"""Read from the top: the first rule that fits decides. Some rule fits every combination."""


def decide(facts: CookieFacts) -> CookieRule:
    """Return the rule that decides."""
    return next(rule for rule in TABLE if rule.fits(facts))


# ── the facts ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DirectoryContent:
    """The content of one directory of the bookie."""

    path: str
    cookie: Cookie | None
    files: tuple[str, ...] = ()
    """Names of other files that are there."""


def local_fact(directories: Sequence[DirectoryContent], expected: Cookie) -> Local:
    """Return the fact about the directories."""
    with_cookie = [one for one in directories if one.cookie is not None]
    if any(one.cookie is not None and any(differences(one.cookie, expected)) for one in with_cookie):
        return Local.DIFFERENT
    if len(with_cookie) == len(directories):
        return Local.OURS
    if with_cookie:
        return Local.PARTIAL
    return Local.UNKNOWN_FILES if any(one.files for one in directories) else Local.EMPTY


def differences(found: Cookie, expected: Cookie) -> Iterator[str]:
    """Yield in words each field in which two cookies differ."""
    for name, one, other in (
        ("bookieHost", found.bookie_host, expected.bookie_host),
        ("journalDir", found.journal_directories, expected.journal_directories),
        ("ledgerDirs", found.ledger_directories, expected.ledger_directories),
        ("instanceId", found.instance_id, expected.instance_id),
        ("indexDirs", _index_directories(found), _index_directories(expected)),
    ):
        if one != other:
            yield f"{name} is {_shown(one)}, and should be {_shown(other)}"


def _index_directories(cookie: Cookie) -> tuple[str, ...]:
    # A bookie writes them also if they are the ledger directories.
    return cookie.index_directories or cookie.ledger_directories


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


# ── in the metadata ───────────────────────────────────────────────────────────────────────────────────────


def cookie_path(root: str, bookie_id: str) -> str:
    """Return the path of a bookie's cookie."""
    return f"{root}/{COOKIES}/{bookie_id}"


async def read_cookie(znodes: Znodes, root: str, bookie_id: str) -> Versioned[Cookie] | Gone:
    """Read the cookie of a bookie."""
    path = cookie_path(root, bookie_id)
    node = await znodes.get(path)
    if isinstance(node, Gone):
        return node
    cookie = cookie_format.decode(node.data)
    if not isinstance(cookie, Cookie):
        raise InvalidMetadata(path, f"no cookie: {cookie}")
    return Versioned(cookie, node.stat.version)


async def list_cookies(znodes: Znodes, root: str) -> tuple[str, ...]:
    """Return the ids of all bookies that ever belonged to the cluster and were not removed from it."""
    children = await znodes.children(f"{root}/{COOKIES}")
    return () if isinstance(children, Gone) else children.names


def encode_cookie(cookie: Cookie) -> bytes:
    """Encode a cookie for the metadata: without the line that only our own directories have."""
    return cookie_format.encode(replace(cookie, store_id=None))


async def write_cookie(znodes: Znodes, root: str, bookie_id: str, cookie: Cookie) -> None:
    """Write the cookie of a bookie that has none. Raise `MetadataConflict` if there is another one."""
    path, data = cookie_path(root, bookie_id), encode_cookie(cookie)
    for _ in range(_ATTEMPTS_MAX):
        if isinstance(await create_node(znodes, path, data), Created):
            return
        await znodes.sync(path)
        node = await znodes.get(path)
        if not isinstance(node, Gone):
            # Equal data: the answer to this or an earlier attempt was lost.
            if node.data != data:
                raise MetadataConflict(path, "there is another cookie already")
            return
    raise MetadataConflict(path, "the connection is lost again and again")


async def delete_cookie(znodes: Znodes, root: str, bookie_id: str) -> None:
    """Remove a bookie from the cluster: it may never come back with its old directories."""
    await delete_node(znodes, cookie_path(root, bookie_id))


async def check_cookies(
    znodes: Znodes,
    root: str,
    names: Sequence[str],
    expected: Cookie,
    directories: Sequence[DirectoryContent],
    ledgers: Ledgers,
) -> CookieDecision:
    """Decide whether a bookie may start, or raise `CookieRefused` with the reason.

    `names` are the ids by which the bookie could be known: first its id, then host name and addresses, so
    that a changed configuration does not look like a new bookie. `expected` has the cluster's instance id.
    """
    bookie_id, *others = names
    found = await read_cookie(znodes, root, bookie_id)
    known_as = [name for name in others if not isinstance(await read_cookie(znodes, root, name), Gone)]
    facts = CookieFacts(
        local_fact(directories, expected),
        _stored_fact(found, known_as, expected),
        Instance.MISSING if expected.instance_id is None else Instance.KNOWN,
        ledgers,
    )
    rule = decide(facts)
    if rule.decision is CookieDecision.REFUSE:
        details = "; ".join(_details(facts, directories, expected, found, known_as))
        raise CookieRefused(bookie_id, f"{rule.why} ({details})" if details else rule.why)
    return rule.decision


def _stored_fact(found: Versioned[Cookie] | Gone, known_as: Sequence[str], expected: Cookie) -> Stored:
    if isinstance(found, Gone):
        return Stored.OTHER_ID if known_as else Stored.NONE
    return Stored.DIFFERENT if any(differences(found.value, expected)) else Stored.OURS


def _details(
    facts: CookieFacts,
    directories: Sequence[DirectoryContent],
    expected: Cookie,
    found: Versioned[Cookie] | Gone,
    known_as: Sequence[str],
) -> Iterator[str]:
    """Yield what a person needs to find the mistake: each difference once, after all places that have it."""
    cookies = [(str(one.path), one.cookie) for one in directories if one.cookie is not None]
    if not isinstance(found, Gone):
        cookies.append(("metadata", found.value))
    places: dict[str, list[str]] = {}
    for place, cookie in cookies:
        for difference in differences(cookie, expected):
            places.setdefault(difference, []).append(place)
    yield from (f"{', '.join(where)}: {difference}" for difference, where in places.items())
    for one in directories:
        if one.cookie is not None:
            continue
        if one.files:
            yield f"{one.path} has no cookie, and has {', '.join(one.files[:_NAMED_MAX])}"
        elif facts.local is Local.PARTIAL:
            yield f"{one.path} has no cookie"
    yield from (f"known as {name}" for name in known_as)


_NAMED_MAX = 5
_ATTEMPTS_MAX = 10
