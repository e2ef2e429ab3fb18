"""Signer's capabilities over the wire: who may get, revoke and list which, and who gets the root keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from services.signer.settings import SignerSettings
from snavio.domain.capability import Capability, derive_root, read_text, verify
from snavio.domain.caveat import Caveat, Operation, Quota
from snavio.errors import BadRequest, NotAllowed, NotFound, Saturated, Unauthenticated
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control, control_plane

# One Signer for all: what a test asks about is what it has made itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")

TD = "spiffe://snavio.local/"
TOPIC = "acme/billing"
CONSUME = ("recv", "ack", "nack", "extend", "stats")
PEOPLE = {
    "bot": "tenant/acme/service/bot",
    "alice": "tenant/acme/principal/alice",
    "evil": "tenant/evil/service/worker",
    "mallory": "tenant/evil/principal/mallory",
    "spark": "job/spark",
    "leaver": "tenant/acme/service/leaver",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def control(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Control]:
    state_dir = tmp_path_factory.mktemp("signer")
    async with control_plane(state_dir, signer_settings=SignerSettings(overlap_s=100)) as one:
        for folder, path in PEOPLE.items():
            await one.certify(path, folder)
        yield one


async def issue(control: Control, caller: str, **wish: Any) -> sig.IssueCapabilityResponse:
    request = sig.IssueCapabilityRequest(**{"realm": TOPIC, "operation": CONSUME, **wish})
    answer: sig.IssueCapabilityResponse = await control.sign(
        caller, "IssueCapability", request, sig.IssueCapabilityResponse
    )
    return answer


async def revoke(control: Control, caller: str = ADMIN, **what: Any) -> int:
    request = sig.RevokeCapabilityRequest(reason="drill", **what)
    answer = await control.sign(caller, "RevokeCapability", request, sig.RevokeCapabilityResponse)
    version: int = answer.version
    return version


async def listed(
    control: Control, *ours: sig.IssueCapabilityResponse, caller: str = ADMIN, **asked: Any
) -> list[bool]:
    """The `revoked` flag of each known capability; unlisted ones are left out."""
    request = sig.ListCapabilitiesRequest(**asked)
    answer = await control.sign(caller, "ListCapabilities", request, sig.ListCapabilitiesResponse)
    known = {one.id: one.revoked for one in answer.capability}
    return [known[one.id] for one in ours if one.id in known]


async def roots(control: Control) -> sig.MailboxRootsResponse:
    answer: sig.MailboxRootsResponse = await control.sign(
        "mailbox", "MailboxRoots", sig.MailboxRootsRequest(), sig.MailboxRootsResponse
    )
    return answer


async def news(control: Control, **since: int) -> sig.CapabilityRevocationsResponse:
    answer: sig.CapabilityRevocationsResponse = await control.sign(
        "mailbox",
        "CapabilityRevocations",
        sig.CapabilityRevocationsRequest(**since),
        sig.CapabilityRevocationsResponse,
    )
    return answer


async def genuine(control: Control, capability: Capability) -> bool:
    """Verified as the mailbox would."""
    identifier = capability.identifier
    for root in (await roots(control)).root:
        if root.root == identifier.root:
            key = derive_root(root.secret, realm=identifier.realm, version=identifier.version)
            return verify(key, capability) is not None
    return False


async def test_I_8_a_service_gets_what_it_needs_for_its_tenants_topics(control: Control) -> None:
    answer = await issue(control, "bot", quota_messages=5, quota_interval_ms=1000)
    held = read_text(answer.capability)
    assert held.identifier.realm == TOPIC and held.identifier.cap_id == answer.id
    assert held.caveats == (
        Caveat(holder=TD + PEOPLE["bot"]),
        Caveat(operations=frozenset(map(Operation, CONSUME))),
        Caveat(expires_ms=answer.expires_unix_ns // 1_000_000),
        Caveat(quota=Quota(5, 1000)),
    )
    assert answer.ttl_seconds == 3600
    assert await genuine(control, held)
    assert await genuine(control, held.attenuate(Caveat(topics=("acme/x",))))


@pytest.mark.parametrize(
    ("caller", "wish", "reason"),
    [
        ("bot", {"realm": "evil/billing"}, "not-owner"),
        ("bot", {"realm": "*"}, "not-owner"),
        ("bot", {"operation": ["send"]}, "not-your-operation"),
        ("bot", {"operation": ["send"], "realm": "acme/*"}, "not-your-operation"),
        ("bot", {"operation": ["send"], "realm": "acme/ownership"}, "not-your-operation"),
        ("bot", {"operation": ["send"], "realm": "evil/own/jobs"}, "not-your-operation"),
        (ADMIN, {"operation": ["send"], "realm": "acme/own/jobs"}, "not-your-operation"),
        ("bot", {"operation": ["recv", "manage"]}, "not-your-operation"),
        ("bot", {"holder": TD + PEOPLE["alice"]}, "not-your-holder"),
        ("bot", {"holder": "tenant:acme"}, "not-your-holder"),
        ("alice", {"realm": "evil/*"}, "not-owner"),
        ("alice", {"operation": ["send"]}, "not-your-operation"),
        ("alice", {"holder": TD + PEOPLE["evil"]}, "not-your-holder"),
        ("alice", {"holder": "tenant:evil"}, "not-your-holder"),
        ("alice", {"holder": TD + "operator/admin"}, "not-your-holder"),
        (ADMIN, {"operation": ["send"]}, "not-your-operation"),
        (ADMIN, {"holder": TD + "mesh/fast", "operation": ["recv"]}, "not-your-holder"),
        ("fast", {}, "not-your-operation"),
        ("fast", {"operation": ["send", "recv"]}, "not-your-operation"),
        ("fast", {"operation": ["send"], "holder": TD + PEOPLE["bot"]}, "not-your-holder"),
        ("spark", {}, "not-allowed"),
        ("shield", {"operation": ["send"]}, "not-allowed"),
        ("mailbox", {"operation": ["send"]}, "not-allowed"),
    ],
)
async def test_I_8_nobody_gets_more_than_his_own(
    control: Control, caller: str, wish: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotAllowed) as refused:
        await issue(control, caller, **wish)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("caller", "wish"),
    [
        ("bot", {"realm": "acme/*"}),
        ("bot", {"realm": "acme/own/jobs", "operation": ["send", "recv", "ack"]}),
        ("bot", {"realm": "acme/own/*", "operation": ["send"]}),
        ("alice", {"operation": ["peek", "list", "manage", "recv"], "realm": "acme/*"}),
        ("alice", {"holder": "tenant:acme"}),
        ("alice", {"holder": TD + PEOPLE["bot"]}),
        (ADMIN, {"realm": "*", "operation": ["stats", "peek", "list", "manage"]}),
        (ADMIN, {"holder": TD + PEOPLE["bot"]}),
        ("fast", {"realm": "*", "operation": ["send"]}),
        ("slow", {"realm": "*", "operation": ["send"]}),
    ],
)
async def test_I_8_everybody_gets_his_own(control: Control, caller: str, wish: dict[str, Any]) -> None:
    assert await genuine(control, read_text((await issue(control, caller, **wish)).capability))


@pytest.mark.parametrize(
    "wish",
    [
        {"realm": ""},
        {"realm": "acme"},
        {"realm": "acme/"},
        {"realm": "acme/b*"},
        {"realm": "acme*"},
        {"realm": "acme/own/j*"},
        {"realm": "/x"},
        {"realm": "**"},
        {"realm": "ACME/x"},
        {"operation": []},
        {"operation": ["fly"]},
        {"holder": "tenant:"},
        {"holder": "bot"},
        {"holder": "spiffe://other.local/mesh/fast"},
        {"quota_messages": 5},
        {"quota_messages": 5, "quota_interval_ms": 10},
    ],
)
async def test_a_wish_that_makes_no_sense_is_named(control: Control, wish: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        await issue(control, ADMIN, **{"operation": ["peek"], **wish})


async def test_the_longest_life_is_the_operators_to_say(control: Control) -> None:
    assert (await issue(control, "bot", ttl_seconds=30 * 86_400)).ttl_seconds == 7 * 86_400
    assert (await issue(control, "bot", ttl_seconds=60)).ttl_seconds == 60


async def test_operators_cannot_use_up_the_meshs_room(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snavio.adapters.embedded.sqlite_capabilities.MAX_PER_TENANT", 0)
    for caller, wish in ((ADMIN, {"operation": ["stats"]}), ("bot", {}), ("fast", {"operation": ["send"]})):
        with pytest.raises(Saturated):
            await issue(control, caller, **wish)
    records = await control.sign(
        ADMIN, "ListCapabilities", sig.ListCapabilitiesRequest(), sig.ListCapabilitiesResponse
    )
    monkeypatch.setattr(
        "snavio.adapters.embedded.sqlite_capabilities.MAX_PER_TENANT", len(records.capability) + 1
    )
    for _ in range(len(records.capability) + 1):
        try:
            await issue(control, ADMIN, operation=["stats"])
        except Saturated:
            break
    with pytest.raises(Saturated):
        await issue(control, ADMIN, operation=["stats"])
    await issue(control, "fast", realm="*", operation=["send"])


async def test_roots_are_for_the_mailbox_alone(control: Control) -> None:
    found = await roots(control)
    assert [len(root.secret) for root in found.root] == [32]
    for caller in ("fast", "shield", "registry", "signer", ADMIN, "bot", "alice"):
        for method in ("MailboxRoots", "CapabilityRevocations"):
            with pytest.raises(NotAllowed):
                await control.sign(caller, method, sig.MailboxRootsRequest(), sig.MailboxRootsResponse)


async def test_nobody_signs_with_or_reads_the_mailboxs_secret_as_a_scope(control: Control) -> None:
    for method, request in (
        ("GetPublicKeys", sig.GetPublicKeysRequest(scope="mailbox")),
        ("RotateScope", sig.RotateScopeRequest(scope="mailbox")),
        ("ProvisionScope", sig.ProvisionScopeRequest(scope="mailbox")),
    ):
        with pytest.raises(BadRequest):
            await control.sign(ADMIN, method, request, sig.PublicKeys)


async def test_I_15_a_revoked_capability_is_told_to_the_mailbox_once(control: Control) -> None:
    first, second = await issue(control, "bot"), await issue(control, "bot")
    seen = await news(control)
    version = await revoke(control, id=first.id)
    told = await news(control, since_version=seen.version, epoch=seen.epoch)
    assert [one.id for one in told.capability] == [first.id] and told.version == version
    assert not (await news(control, since_version=told.version, epoch=told.epoch)).capability
    assert await listed(control, first, second) == [True, False]


async def test_I_15_a_revoked_holder_may_have_new_ones_unless_it_is_barred(control: Control) -> None:
    before = await issue(control, "bot")
    await revoke(control, holder=TD + PEOPLE["bot"])
    (holder,) = [one for one in (await news(control)).holder if one.holder == TD + PEOPLE["bot"]]
    assert read_text(before.capability).identifier.issued_ms <= holder.issued_until_unix_ms
    # Even in the same millisecond: a new capability is not covered by the ending.
    after = await issue(control, "bot")
    assert read_text(after.capability).identifier.issued_ms > holder.issued_until_unix_ms
    await revoke(control, holder="tenant:acme", bar=True)
    for caller in ("bot", "alice"):
        with pytest.raises(NotAllowed) as refused:
            await issue(control, caller)
        assert refused.value.reason == "holder-barred"
    await issue(control, "evil", realm="evil/x")
    await revoke(control, holder="tenant:acme", restore=True)
    last = await issue(control, "bot")
    assert await listed(control, before, after, last, realm="acme/") == [True, True, False]


async def test_I_15_rotation_keeps_what_was_made_before_for_the_overlap(control: Control) -> None:
    topic = "acme/rotated"
    first = await issue(control, "bot", realm=topic)
    before = read_text(first.capability)
    request = sig.RotateCapabilityRootRequest(realm=topic)
    answer = await control.sign("alice", "RotateCapabilityRoot", request, sig.RotateCapabilityRootResponse)
    assert answer.version == 2
    assert answer.overlap_until_unix_ns == control.clock.unix_ns() + 100 * 10**9
    second = await issue(control, "bot", realm=topic)
    after = read_text(second.capability)
    assert (before.identifier.version, after.identifier.version) == (1, 2)
    assert await genuine(control, before) and await genuine(control, after)
    (line,) = (await news(control)).line
    assert (line.realm, line.version, line.minimum, list(line.old_version)) == (topic, 2, 1, [1])
    await revoke(control, "alice", root=sig.RootVersion(realm=topic, version=1))
    (line,) = (await news(control)).line
    assert (line.version, line.minimum) == (2, 2)
    assert await listed(control, first, second) == [True, False]


async def test_I_15_the_mailbox_has_a_new_secret_before_anything_is_made_under_it(control: Control) -> None:
    before = read_text((await issue(control, "bot")).capability)
    request = sig.RotateCapabilityRootRequest()
    await control.sign(ADMIN, "RotateCapabilityRoot", request, sig.RotateCapabilityRootResponse)
    assert len((await roots(control)).root) == 2 == len((await news(control)).root)
    assert read_text((await issue(control, "bot")).capability).identifier.root == before.identifier.root
    control.clock.advance(seconds=control.signer_settings.distribution_delay_s)
    after = read_text((await issue(control, "bot")).capability)
    assert after.identifier.root != before.identifier.root
    assert await genuine(control, before) and await genuine(control, after)
    control.clock.advance(seconds=101)
    assert not await genuine(control, before) and await genuine(control, after)


async def test_a_tenant_governs_its_own_and_sees_nothing_of_others(control: Control) -> None:
    mine, theirs = await issue(control, "bot"), await issue(control, "evil", realm="evil/x")
    assert await listed(control, theirs, caller="alice") == []
    assert await listed(control, mine, caller="alice") == [False]
    with pytest.raises(NotFound):
        await revoke(control, "mallory", id=mine.id)
    for what in (
        {"holder": TD + PEOPLE["bot"]},
        {"holder": "tenant:acme", "bar": True},
        {"holder": TD + "mesh/fast"},
        {"root": sig.RootVersion(realm=TOPIC, version=1)},
        {"root": sig.RootVersion(realm="*", version=1)},
    ):
        with pytest.raises(NotAllowed):
            await revoke(control, "mallory", **what)
    for realm in ("", "*", TOPIC):
        with pytest.raises(NotAllowed):
            request = sig.RotateCapabilityRootRequest(realm=realm)
            await control.sign("mallory", "RotateCapabilityRoot", request, sig.RotateCapabilityRootResponse)
    for caller in ("bot", "evil"):
        with pytest.raises(NotAllowed):
            await listed(control, caller=caller)
    await revoke(control, "mallory", id=theirs.id)
    assert await listed(control, mine, theirs) == [False, True]


async def test_what_to_revoke_must_be_said(control: Control) -> None:
    for what in ({}, {"id": "ab" * 16, "bar": True}, {"root": sig.RootVersion(realm=TOPIC, version=9)}):
        with pytest.raises(BadRequest):
            await revoke(control, **what)
    with pytest.raises(NotFound):
        await revoke(control, id="ab" * 16)


async def test_a_barred_identity_gets_no_capability(control: Control) -> None:
    # Its certificate would be refused too; this holds for the moment between the two.
    request = sig.RevokeIdentityRequest(spiffe_id=TD + PEOPLE["leaver"], reason="drill")
    await control.sign(ADMIN, "RevokeIdentity", request, sig.RevokeIdentityResponse)
    with pytest.raises((NotAllowed, Unauthenticated)) as refused:
        await issue(control, "leaver")
    assert "revoked" in str(refused.value)


async def test_I_15_capabilities_revocations_and_secrets_survive_a_restart(control: Control) -> None:
    held = await issue(control, "bot")
    await revoke(control, id=held.id)
    before = [each.secret for each in (await roots(control)).root]
    await control.stop_signer()
    control.mesh = control.mesh.model_copy(update={"signer": "127.0.0.1:0"})
    await control.start_signer()
    assert [each.secret for each in (await roots(control)).root] == before
    assert held.id in [one.id for one in (await news(control)).capability]
    assert await listed(control, held) == [True]


async def test_neither_secrets_nor_capabilities_are_in_the_ledger_or_in_plain_sight(control: Control) -> None:
    text = (await issue(control, "bot")).capability
    secret = (await roots(control)).root[0].secret
    signature = read_text(text).signature
    for path in (control.mesh.state_dir / "signer").iterdir():
        found = path.read_bytes()
        for hidden in (secret, secret.hex().encode(), signature, signature.hex().encode(), text.encode()):
            assert hidden not in found, path.name
