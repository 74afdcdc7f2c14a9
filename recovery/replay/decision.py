"""Decides about one journal whether its end is a torn tail, void or rot, as a table.

The facts are: where the journal is in the chain of seals, and whether it agrees with the chain; its writer;
whether it is sound up to its end; whether that end reaches what is known to be durable; whether data after
the end proves that more was written; and whether it is the last journal. The first rule that fits is the
answer. A test walks every combination.

Opening, `verify`, salvage and the audit use this table. Two sentences carry it. What a later seal names as
durable and is not there is rot. What no seal names is a torn tail, unless data after it proves that a later
write was begun, because a write is never begun before the earlier one is durable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from storage.journal.scan import Owner


class ChainPlace(enum.Enum):
    """Where a journal is in the chain of seals."""

    NEWEST = "the newest journal with a valid seal"
    NAMED = "named by the first seal of a later one, and sound up to exactly there"
    MARKED = "the journal of the mark, if a later first seal names nothing before the mark"
    SKIPPED = "between two links of the chain"
    LATER = "after the newest sealed journal, or no journal is sealed"


class JournalState(enum.Enum):
    """Whether the journal is sound from its start to the end of the file."""

    UNREADABLE = "written by a newer version, or with an unknown digest type"
    SOUND = "only zeros after its end"
    BROKEN = "other bytes after its end"


class Reach(enum.Enum):
    """Whether the sound part is as long as it must be."""

    COVERS = "its end reaches what is known to be durable"
    SHORT = "its end is before what is known to be durable"


class JournalClaim(enum.Enum):
    """Whether the journal agrees with the chain."""

    CONSISTENT = "it claims nothing that the chain denies"
    CONTRADICTED = "its seals or its records say more than the chain allows"


class LaterData(enum.Enum):
    """Whether data after the sound part proves that more was written."""

    NOTHING = "no data after the end can be decoded"
    PROOF = "after the end there is a valid seal, or in a bookie's journal a good entry"


class Following(enum.Enum):
    """Whether this is the last journal."""

    NONE = "no later journal has any content"
    SOME = "a later journal has content"


class Decision(enum.Enum):
    """The decision about a journal."""

    USE = "everything up to its end counts, for a named journal up to where it is named"
    CUT = "everything up to its end counts, and those records of the torn tail that verify are kept"
    KEEP = "nothing in it is known to be durable; those records of its first group that verify are kept"
    VOID = "nothing in it counts, because what was kept of it is in the first group of the next journal"
    ROT = "acknowledged bytes are damaged or gone, so the store is refused"
    UNREADABLE = "it may be sound and cannot be read, so the store is refused"


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """The facts that decide about one journal."""

    place: ChainPlace
    owner: Owner
    state: JournalState
    claim: JournalClaim
    reach: Reach
    later_data: LaterData
    following: Following


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table: the values of each fact that it is for, and the decision with its reason."""

    decision: Decision
    why: str
    places: frozenset[ChainPlace] = frozenset(ChainPlace)
    owners: frozenset[Owner] = frozenset(Owner)
    states: frozenset[JournalState] = frozenset(JournalState)
    claims: frozenset[JournalClaim] = frozenset(JournalClaim)
    reaches: frozenset[Reach] = frozenset(Reach)
    later_data: frozenset[LaterData] = frozenset(LaterData)
    followings: frozenset[Following] = frozenset(Following)

    def fits(self, facts: JournalFacts) -> bool:
        return (
            facts.place in self.places
            and facts.owner in self.owners
            and facts.state in self.states
            and facts.claim in self.claims
            and facts.reach in self.reaches
            and facts.later_data in self.later_data
            and facts.following in self.followings
        )


_OURS = frozenset({Owner.OURS})
_BOOKIE = frozenset({Owner.BOOKIE})
_SHORT = frozenset({Reach.SHORT})
_BROKEN = frozenset({JournalState.BROKEN})

TABLE = (
    Rule(
        Decision.UNREADABLE,
        "a journal that cannot be read may be sound",
        states=frozenset({JournalState.UNREADABLE}),
    ),
    Rule(
        Decision.ROT,
        "a first seal names everything that was durable before it, so these journals are not of one history",
        claims=frozenset({JournalClaim.CONTRADICTED}),
    ),
    Rule(
        Decision.VOID,
        "a later first seal goes back only to the mark, so what follows was carried over or never counted",
        places=frozenset({ChainPlace.MARKED}),
    ),
    Rule(
        Decision.VOID,
        "a later journal was begun without it, and has what was kept of it",
        places=frozenset({ChainPlace.SKIPPED}),
    ),
    Rule(
        Decision.ROT,
        "a header is durable before its file has a name, and without it nothing in the file can be trusted",
        owners=frozenset({Owner.UNKNOWN}),
    ),
    Rule(
        Decision.ROT,
        "bytes that were known to be durable are damaged or gone",
        reaches=_SHORT,
    ),
    Rule(
        Decision.VOID,
        "the file was made, and nothing was ever acknowledged in it",
        owners=frozenset({Owner.VOID}),
    ),
    Rule(
        Decision.USE,
        "sound up to the end that the first seal of the next journal names; what follows is void",
        places=frozenset({ChainPlace.NAMED}),
    ),
    Rule(
        Decision.USE,
        "sound up to its end",
        places=frozenset({ChainPlace.NEWEST}),
        states=frozenset({JournalState.SOUND}),
    ),
    Rule(
        Decision.ROT,
        "a group after the damage was begun, so the damaged one had been durable",
        owners=_OURS,
        states=_BROKEN,
        later_data=frozenset({LaterData.PROOF}),
    ),
    Rule(
        Decision.CUT,
        "no seal names the last group as durable: its write was cut short, or its only copy is damaged",
        places=frozenset({ChainPlace.NEWEST}),
    ),
    Rule(
        Decision.KEEP,
        "a journal of ours without a seal: at most its first group was begun",
        owners=_OURS,
    ),
    Rule(
        Decision.USE,
        "a bookie's journal with good digests and only zeros after the end",
        owners=_BOOKIE,
        states=frozenset({JournalState.SOUND}),
    ),
    Rule(
        Decision.ROT,
        "a good entry is after the damage, which a torn write does not leave",
        owners=_BOOKIE,
        later_data=frozenset({LaterData.PROOF}),
    ),
    Rule(
        Decision.ROT,
        "damage in a bookie's journal that is not the last one",
        owners=_BOOKIE,
        followings=frozenset({Following.SOME}),
    ),
    Rule(
        Decision.CUT,
        "the end of a bookie's last journal: its write was cut short, or its only copy is damaged",
        owners=_BOOKIE,
    ),
)


def decide(facts: JournalFacts) -> Rule:
    """The first rule that fits; one always does."""
    return next(rule for rule in TABLE if rule.fits(facts))
