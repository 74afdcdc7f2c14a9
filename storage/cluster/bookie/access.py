"""Which clients a bookie serves: with or without TLS, and with which roles in their certificates.

A client has the roles that the first organizational unit of its certificate's subject names, in BookKeeper's
form:

    OU=0:role,role;1:cluster      the part with the number 0 has the roles, separated by commas

As in BookKeeper, only the first of them counts.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

Subject = tuple[tuple[tuple[str, str], ...], ...]
"""The subject of a certificate: its relative names in their order, each with pairs of a type and a value."""

_ROLES = "0"


class Channels(enum.Enum):
    """Whether requests come over TLS."""

    PLAIN_ONLY = "plain only"
    """The bookie has no certificate."""
    PLAIN_OR_TLS = "plain or TLS"
    """Each client chooses, as with a Java bookie."""
    TLS_ONLY = "TLS only"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The conditions under which the requests of a client are served."""

    channels: Channels = Channels.PLAIN_ONLY
    roles: frozenset[str] = frozenset()
    """One of these roles is needed in the client's certificate; empty if none is."""

    @property
    def serves_plain_text(self) -> bool:
        """Whether requests are served before START_TLS. A role can only be proven with TLS."""
        return self.channels is not Channels.TLS_ONLY and not self.roles

    def refusal_of(self, subject: Subject | None) -> str | None:
        """Return why a client with TLS is not served, or `None` if it is.

        `subject` is that of its verified certificate; `None` if it has shown none.
        """
        if not self.roles:
            return None
        if subject is None:
            return "the client has shown no certificate"
        role = role_of(subject)
        if role is None:
            return "the client's certificate names no role"
        return None if role in self.roles else f"the role {role!r} is not authorized"


def role_of(subject: Subject) -> str | None:
    """Return the role that counts in the subject of a certificate; `None` if it names none."""
    names = (value for pairs in subject for key, value in pairs if key == "organizationalUnitName")
    parts = (part.partition(":") for part in next(names, "").split(";"))
    # The last of equal numbers counts, as in BookKeeper.
    roles = {number.strip(): text for number, colon, text in parts if colon}.get(_ROLES, "")
    return roles.split(",")[0].strip() or None
