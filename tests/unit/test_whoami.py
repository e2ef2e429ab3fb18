"""Rights in words: none that the authorisation table does not give, and none kept from whoever has it."""

from __future__ import annotations

import pytest

from snavio.cli import whoami
from snavio.cli.whoami import rights
from snavio.domain.identity import Identity, IdentityKind
from snavio.rpc.authorisation import TABLE, AccessRule, authorise

CI = Identity("snavio.local", IdentityKind.PRINCIPAL, "ci", "acme")
BILLING = Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme")
ADMIN = Identity("snavio.local", IdentityKind.OPERATOR, "admin")


@pytest.mark.parametrize("identity", [CI, BILLING, ADMIN], ids=lambda who: who.kind.value)
def test_words_name_a_right_only_where_the_table_gives_it(identity: Identity) -> None:
    told = rights(identity)
    for row in whoami._WORDS.strip().splitlines():
        words, _, methods = row.partition(" | ")
        whose = f"{identity.tenant}'s" if identity.tenant else "every tenant's"
        given = any(authorise(in_table(method), identity) for method in methods.split())
        assert (words.format(tenant=identity.tenant, whose=whose) in told) == given, words


def in_table(word: str) -> str:
    return word.replace(":", " ") if word.startswith("GET:") else f"/snavio.v1.{word}"


@pytest.mark.parametrize("identity", [CI, BILLING, ADMIN], ids=lambda who: who.kind.value)
def test_every_right_of_a_person_or_a_service_has_words(identity: Identity) -> None:
    assert [right for right in rights(identity) if "/" in right] == []


def test_a_principal_is_not_told_that_it_rotates_keys() -> None:
    assert "rotate and revoke keys" not in rights(CI)
    assert "see the keys that acme's services sign with, and their last poll" in rights(CI)


def test_words_name_methods_that_exist() -> None:
    named = {
        in_table(method)
        for row in whoami._WORDS.strip().splitlines()
        for method in row.partition(" | ")[2].split()
    }
    assert named <= set(TABLE)


def test_a_right_without_words_is_told_by_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    from snavio.rpc import authorisation

    more = {**TABLE, "/snavio.v1.Registry/Frobnicate": (AccessRule(IdentityKind.PRINCIPAL),)}
    monkeypatch.setattr(authorisation, "TABLE", more)
    assert "Registry/Frobnicate" in rights(CI)
    assert "Registry/Frobnicate" not in rights(BILLING)


def test_a_service_sends_and_a_principal_registers() -> None:
    assert "send commands" in rights(BILLING)
    assert "send commands" not in rights(CI)
    assert "register acme's services, targets, routes and rights" in rights(CI)
    assert "register every tenant's services, targets, routes and rights" in rights(ADMIN)
