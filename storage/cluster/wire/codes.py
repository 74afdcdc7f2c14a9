"""The result codes of a bookie, in one table: both versions of the protocol, the Java client, our errors.

Version 2 has no code for "it is not known whether the entry exists" (507 in version 3): a Java client throws
at the code 107 and closes its connection, with all other calls on it. It gets 101 there, an I/O error, which
it treats as the failure of this one bookie.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from storage import errors

if TYPE_CHECKING:
    from collections.abc import Mapping


class Code(enum.Enum):
    """The result of a request: its name, its number in version 2 and in version 3."""

    OK = (0, 0)
    NO_LEDGER = (1, 402)
    NO_ENTRY = (2, 403)
    BAD_REQUEST = (100, 404)
    IO_ERROR = (101, 501)
    UNAUTHORIZED = (102, 502)
    BAD_VERSION = (103, 503)
    FENCED = (104, 504)
    READ_ONLY = (105, 505)
    TOO_MANY_REQUESTS = (106, 506)
    UNKNOWN_LEDGER_STATE = (101, 507)

    def __init__(self, v2: int, v3: int) -> None:
        self.v2 = v2
        self.v3 = v3


OF_V2: Mapping[int, Code] = {code.v2: code for code in reversed(Code)}
"""By the number in version 2. 101 is `IO_ERROR`, because that is what a peer means by it."""

OF_V3: Mapping[int, Code] = {code.v3: code for code in Code}
"""By the number in version 3."""

UNKNOWN_LEDGER_STATE_OF_V2 = 107
"""A Java bookie sends it in version 2. It is only ever read, never sent: see the module."""

JAVA_EXCEPTIONS: Mapping[Code, tuple[int, str]] = {
    Code.NO_LEDGER: (-7, "NoSuchLedgerExistsException"),
    Code.NO_ENTRY: (-13, "NoSuchEntryException"),
    Code.UNAUTHORIZED: (-102, "UnauthorizedAccessException"),
    Code.BAD_VERSION: (-16, "ProtocolVersionException"),
    Code.FENCED: (-101, "LedgerFencedException"),
    Code.READ_ONLY: (-104, "WriteOnReadOnlyBookieException"),
    Code.TOO_MANY_REQUESTS: (-105, "TooManyRequestsException"),
    Code.UNKNOWN_LEDGER_STATE: (-108, "DataUnknownException"),
}
"""The number and the name of the exception that the Java client raises for a code. For the other codes it
raises the exception of the operation: `WriteException` (-12) or `ReadException` (-1)."""

_OF_ERRORS: tuple[tuple[type[BaseException], Code], ...] = (
    (errors.NoSuchEntry, Code.NO_ENTRY),
    (errors.NoSuchLedger, Code.NO_LEDGER),
    (errors.LedgerFenced, Code.FENCED),
    # Before `Unauthorized`, of which it is a kind: the password may be right, and only the key is lost.
    (errors.LedgerUnproven, Code.IO_ERROR),
    (errors.Unauthorized, Code.UNAUTHORIZED),
    (errors.AnswerUnknown, Code.UNKNOWN_LEDGER_STATE),
    (errors.DiskFull, Code.READ_ONLY),
    (errors.Overloaded, Code.TOO_MANY_REQUESTS),
    (errors.InvalidEntry, Code.BAD_REQUEST),
    (errors.LacBeyondEnd, Code.BAD_REQUEST),
)


def code_of(error: BaseException) -> Code:
    """Return the code that answers a request which has raised this error."""
    for kind, code in _OF_ERRORS:
        if isinstance(error, kind):
            return code
    return Code.IO_ERROR
