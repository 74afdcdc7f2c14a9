"""Torn tail, void, or rot: the decision for one journal, as a table.

The facts that decide: where the journal stands in the chain of seals, and whether it agrees with it; who
wrote it; whether it is sound up to its end; whether that end reaches what is vouched for; whether anything
behind the end proves that more was written; and whether it is the last. The first rule that fits is the
answer; every combination is walked by a test.

The same table serves opening, `verify`, salvage and the audit. Two sentences carry it: what a later seal
vouches for and is not there, is rot; what nobody vouches for is a torn tail, unless something behind it
proves that a later write was begun, which is never done before the earlier one was durable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from storage.journal_scan import Owner


class Place(enum.Enum):
    """Where a journal stands in the chain that the seals make."""

    NEWEST = "the newest journal with a valid seal"
    NAMED = "named by the first seal of a later one, and sound up to exactly there"
    MARKED = "the mark's own journal, when a later first seal goes back no further than the mark"
    SKIPPED = "between two links of the chain"
    LATER = "behind the newest sealed journal, or there is none"


class State(enum.Enum):
    """What the journal is like from its start to the end of the file."""

    UNREADABLE = "written by a newer version, or with a digest that nothing tells"
    SOUND = "only zeros behind its end"
    BROKEN = "something else behind its end"


class Reach(enum.Enum):
    """Whether the sound part is as long as it must be."""

    COVERS = "its end reaches what is vouched for"
    SHORT = "its end lies before what is vouched for"


class Claim(enum.Enum):
    """Whether the journal agrees with the chain that names it or passes it over."""

    CONSISTENT = "it claims nothing that the chain denies"
    CONTRADICTED = "its seals or its records say more than the chain that passes it over"


class Behind(enum.Enum):
    """Whether anything behind the sound part proves that more was written."""

    NOTHING = "nothing behind the end makes sense"
    PROOF = "behind the end stands a valid seal, or in a bookie's journal a good entry"


class Following(enum.Enum):
    """Whether this is the last journal."""

    NONE = "no later journal has any content"
    SOME = "a later journal has content"


class Decision(enum.Enum):
    """What to make of a journal."""

    USE = "everything up to its end counts, for a named journal up to where it is named"
    CUT = "everything up to its end counts; of the torn tail what frames and verifies is kept"
    KEEP = "nothing in it is vouched for; of its first group what frames and verifies is kept"
    VOID = "nothing in it counts: what was kept of it stands in the next journal's first group"
    ROT = "acknowledged bytes are damaged or gone: refuse"
    UNREADABLE = "nothing is known to be wrong with it, and we cannot read it: refuse"


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides about one journal."""

    place: Place
    owner: Owner
    state: State
    claim: Claim
    reach: Reach
    behind: Behind
    following: Following


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table: the values of each fact that it is for, and the decision with its reason."""

    decision: Decision
    why: str
    places: frozenset[Place] = frozenset(Place)
    owners: frozenset[Owner] = frozenset(Owner)
    states: frozenset[State] = frozenset(State)
    claims: frozenset[Claim] = frozenset(Claim)
    reaches: frozenset[Reach] = frozenset(Reach)
    behinds: frozenset[Behind] = frozenset(Behind)
    followings: frozenset[Following] = frozenset(Following)

    def fits(self, facts: Facts) -> bool:
        return (
            facts.place in self.places
            and facts.owner in self.owners
            and facts.state in self.states
            and facts.claim in self.claims
            and facts.reach in self.reaches
            and facts.behind in self.behinds
            and facts.following in self.followings
        )


_OURS = frozenset({Owner.OURS})
_BOOKIE = frozenset({Owner.BOOKIE})
_SHORT = frozenset({Reach.SHORT})
_BROKEN = frozenset({State.BROKEN})

TABLE = (
    Rule(
        Decision.UNREADABLE,
        "what cannot be read is not torn, not void and not rot",
        states=frozenset({State.UNREADABLE}),
    ),
    Rule(
        Decision.ROT,
        "a first seal names everything that was durable before it: these journals are not of one history",
        claims=frozenset({Claim.CONTRADICTED}),
    ),
    Rule(
        Decision.VOID,
        "a later first seal goes back to the mark only: what follows here was carried over, or never counted",
        places=frozenset({Place.MARKED}),
    ),
    Rule(
        Decision.VOID,
        "a later journal was begun without it: what was kept of it stands there",
        places=frozenset({Place.SKIPPED}),
    ),
    Rule(
        Decision.ROT,
        "a header is durable before its file has a name, and without one nothing in the file can be trusted",
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
        owners=frozenset({Owner.NOBODY}),
    ),
    Rule(
        Decision.USE,
        "sound up to where the next journal's first seal says it was; what lies behind that is void",
        places=frozenset({Place.NAMED}),
    ),
    Rule(
        Decision.USE,
        "sound up to its end",
        places=frozenset({Place.NEWEST}),
        states=frozenset({State.SOUND}),
    ),
    Rule(
        Decision.ROT,
        "a group behind the damage was begun, so the damaged one had been durable",
        owners=_OURS,
        states=_BROKEN,
        behinds=frozenset({Behind.PROOF}),
    ),
    Rule(
        Decision.CUT,
        "nobody vouches for the last group: the write was cut short, or its only copy is damaged",
        places=frozenset({Place.NEWEST}),
    ),
    Rule(
        Decision.KEEP,
        "ours, and no seal in it: at most its first group was begun",
        owners=_OURS,
    ),
    Rule(
        Decision.USE,
        "a bookie's, every digest good, zeros behind the end",
        owners=_BOOKIE,
        states=frozenset({State.SOUND}),
    ),
    Rule(
        Decision.ROT,
        "a good entry stands behind the damage: this is not how a write is cut short",
        owners=_BOOKIE,
        behinds=frozenset({Behind.PROOF}),
    ),
    Rule(
        Decision.ROT,
        "damage in a bookie's journal that is not the last one",
        owners=_BOOKIE,
        followings=frozenset({Following.SOME}),
    ),
    Rule(
        Decision.CUT,
        "the end of a bookie's last journal: the write was cut short, or its only copy is damaged",
        owners=_BOOKIE,
    ),
)


def decide(facts: Facts) -> Rule:
    """The first rule that fits; one always does."""
    return next(rule for rule in TABLE if rule.fits(facts))
