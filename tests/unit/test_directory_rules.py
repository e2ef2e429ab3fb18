from __future__ import annotations

import pytest

from snavio.domain.directory import (
    AclEntry,
    Route,
    Service,
    Suspension,
    Target,
    Tenant,
    require_operator,
    require_tenant,
)
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, NotAllowed

TRUST_DOMAIN = "snavio.local"
OPERATOR = Identity(TRUST_DOMAIN, IdentityKind.OPERATOR, "admin")
PRINCIPAL = Identity(TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", "acme")
SERVICE = Identity(TRUST_DOMAIN, IdentityKind.SERVICE, "billing", "acme")
MESH = Identity(TRUST_DOMAIN, IdentityKind.MESH, "fast")


@pytest.mark.parametrize("name", ["", "Acme", "-acme", "acme-", "a" * 64, "acme/x", "acme\n", "akme\u0301"])
def test_bad_tenant_name_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(BadRequest, match=r"^tenant: must be "):
        Tenant(name)


@pytest.mark.parametrize("target", ["", ".bot", "Bot", "b" * 129, "bot/x", "bot\n", "bot x"])
def test_bad_target_name_is_refused_with_its_field(target: str) -> None:
    with pytest.raises(BadRequest, match=r"^target\.target: must be "):
        Target(target, "acme")
    with pytest.raises(BadRequest, match=r"^route\.target: must be "):
        Route(target, "Ping")


@pytest.mark.parametrize("name", ["", ":x", "n" * 129, "a b", "a/b", "a\n"])
def test_bad_command_name_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(BadRequest, match=r"^acl\.name: must be "):
        AclEntry("acme/billing", "bot", name)


@pytest.mark.parametrize(
    "source", ["", "acme", "acme/", "/billing", "acme/billing/x", "acme/Billing", "acme//billing"]
)
def test_bad_source_is_refused_with_its_field(source: str) -> None:
    with pytest.raises(BadRequest, match=r"^acl\.source: must be <tenant>/<service>"):
        AclEntry(source, "bot", "Ping")
    with pytest.raises(BadRequest, match=r"^suspension\.source: must be <tenant>/<service>"):
        Suspension(source)


def test_good_names_are_good() -> None:
    assert Service("acme", "billing-2").source == "acme/billing-2"
    assert Target("discord-bot.eu_1", "acme").key == ("discord-bot.eu_1",)
    assert AclEntry("acme/billing", "bot", "Send:Message.v2").parent == "bot"


def test_topic_is_derived_from_owner_and_target() -> None:
    assert Route("bot", "Ping", topic="victim/queue").addressed_to("acme").topic == "acme/bot"


def test_reason_with_control_characters_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"^suspension\.reason: "):
        Suspension("acme/billing", "line\nbreak")
    with pytest.raises(BadRequest, match=r"^suspension\.reason: "):
        Suspension("acme/billing", "r" * 257)


def test_only_own_principals_and_operators_write_what_belongs_to_a_tenant() -> None:
    require_tenant(OPERATOR, "acme")
    require_tenant(PRINCIPAL, "acme")
    for actor, tenant in ((PRINCIPAL, "rival"), (SERVICE, "acme"), (MESH, "acme")):
        with pytest.raises(NotAllowed):
            require_tenant(actor, tenant)


def test_only_operators_do_what_operators_do() -> None:
    require_operator(OPERATOR)
    for actor in (PRINCIPAL, SERVICE, MESH):
        with pytest.raises(NotAllowed):
            require_operator(actor)
