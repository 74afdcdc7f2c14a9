"""A bookie serves the clients that its policy names, as BookKeeper's `BookieAuthZFactory` does."""

from __future__ import annotations

import pytest

from storage.cluster.bookie.access import AccessPolicy, Channels, Subject, role_of

ORGANIZATION = (("organizationName", "example"),)
NAME = (("commonName", "a client"),)


def subject(*units: str) -> Subject:
    return (ORGANIZATION, *((("organizationalUnitName", unit),) for unit in units), NAME)


@pytest.mark.parametrize(
    ("units", "role"),
    [
        ((), None),
        (("",), None),
        (("writers",), None),
        (("0:writers",), "writers"),
        (("0: writers , readers",), "writers"),
        (("1:east;0:writers",), "writers"),
        (("0:writers;1:east",), "writers"),
        (("0:writers;0:readers",), "readers"),
        (("1:east",), None),
        (("0:",), None),
        (("0:,writers",), None),
        (("1:east", "0:writers"), None),
    ],
)
def test_the_first_role_of_the_first_unit_counts(units: tuple[str, ...], role: str | None) -> None:
    assert role_of(subject(*units)) == role


def test_a_policy_without_roles_serves_every_client() -> None:
    for channels in Channels:
        policy = AccessPolicy(channels)
        assert policy.serves_plain_text is (channels is not Channels.TLS_ONLY)
        assert policy.refusal_of(None) is None
        assert policy.refusal_of(subject("0:any")) is None


def test_a_policy_with_roles_serves_only_certificates_that_name_one() -> None:
    policy = AccessPolicy(Channels.PLAIN_OR_TLS, frozenset({"writers", "admins"}))
    assert not policy.serves_plain_text
    assert policy.refusal_of(subject("0:admins")) is None
    assert policy.refusal_of(subject("0:readers")) == "the role 'readers' is not authorized"
    assert policy.refusal_of(subject("0:readers,admins")) == "the role 'readers' is not authorized"
    assert policy.refusal_of(subject()) == "the client's certificate names no role"
    assert policy.refusal_of(None) == "the client has shown no certificate"
