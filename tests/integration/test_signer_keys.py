"""Signer's keys over real mTLS: minimums, reports, events, scopes, and the callers of each method."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from services.signer import bootstrap
from services.signer.settings import SignerSettings
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound
from snavio.native import ed25519_is_weak, ed25519_verify
from snavio.rpc.proto_message import ProtoMessage
from snavio.signed.archive_manifest import ArchiveManifest
from snavio.signed.manifest_signer import verified
from snavio.signed.verification import VerifyingKey
from snavio.v1 import signer_pb2 as wire
from tests.support.control import ADMIN, Control, control_plane

SOURCE = "acme/billing"
DAY_S = 24 * 3600


async def furnish(control: Control) -> None:
    await control.sign(ADMIN, "CreateKeyset", wire.CreateKeysetRequest(source=SOURCE), wire.KeysetStatus)


@pytest.fixture
async def billing(control: Control) -> str:
    await control.certify("tenant/acme/service/billing", "billing")
    return "billing"


async def rotate(control: Control) -> wire.KeysetStatus:
    status = await control.sign(
        ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus
    )
    await control.spread_keys()
    return status


async def describe(control: Control, source: str = SOURCE) -> wire.KeysetStatus:
    request = wire.DescribeKeysetsRequest(source=source)
    return (await control.sign(ADMIN, "DescribeKeysets", request, wire.DescribeKeysetsResponse)).keyset[0]


async def poll(control: Control, caller: str) -> wire.TenantConfigResponse:
    return await control.sign(caller, "TenantConfig", wire.TenantConfigRequest(), wire.TenantConfigResponse)


async def minimum(control: Control, version: str) -> wire.KeysetStatus:
    request = wire.SetMinimumKeyRequest(source=SOURCE, key_version=version)
    return await control.sign(ADMIN, "SetMinimumKey", request, wire.KeysetStatus)


async def report(control: Control, **commands: int) -> None:
    use = [
        wire.KeyUse(source=SOURCE, key_version=version.replace("_", "-"), commands=count)
        for version, count in commands.items()
    ]
    await control.sign(
        "shield", "ReportKeyUsage", wire.ReportKeyUsageRequest(use=use), wire.ReportKeyUsageResponse
    )


async def events(control: Control, **fields: int) -> wire.EventsResponse:
    return await control.sign(ADMIN, "Events", wire.EventsRequest(**fields), wire.EventsResponse)


async def test_minimum_reaches_shield_as_revocation_and_is_kept(control: Control) -> None:
    await rotate(control)
    status = await minimum(control, "hmac-v2")
    assert (status.keyset.minimum, status.primary) == ("hmac-v2", "hmac-v2")
    assert [version.state for version in status.keyset.version] == [
        wire.KEY_STATE_REVOKED,
        wire.KEY_STATE_PRIMARY,
    ]
    changes = await control.sign(
        "shield", "KeysetChanges", wire.KeysetChangesRequest(), wire.KeysetChangesResponse
    )
    assert [version.revoked for version in changes.keyset[0].version] == [True, False]
    await control.stop_signer()
    await control.start_signer()
    assert (await describe(control)).keyset.minimum == "hmac-v2"


async def test_minimum_that_would_refuse_everybody_is_refused(control: Control) -> None:
    await control.sign(ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus)
    with pytest.raises(Conflict) as refusal:
        await minimum(control, "hmac-v2")
    assert refusal.value.reason == "minimum-above-primary"


async def test_source_is_told_what_it_may_still_sign_with_and_nothing_dead(
    control: Control, billing: str
) -> None:
    await rotate(control)
    config = await poll(control, billing)
    assert [(version.version, version.state) for version in config.keyset.version] == [
        ("hmac-v1", wire.KEY_STATE_PREVIOUS),
        ("hmac-v2", wire.KEY_STATE_PRIMARY),
    ]
    assert config.keyset.version[0].not_after_unix_ns > control.clock.unix_ns()
    assert config.poll_after_seconds == 12 * 3600
    await minimum(control, "hmac-v2")
    assert [version.version for version in (await poll(control, billing)).keyset.version] == ["hmac-v2"]


async def test_last_poll_is_known_after_a_restart(control: Control, billing: str) -> None:
    assert (await describe(control)).last_poll_unix_ns == 0
    await poll(control, billing)
    polled = control.clock.unix_ns()
    await control.stop_signer()
    control.clock.advance(seconds=60)
    await control.start_signer()
    assert (await describe(control)).last_poll_unix_ns == polled


async def test_traffic_decides_whether_a_version_may_be_retired(control: Control, billing: str) -> None:
    await rotate(control)
    await poll(control, billing)
    control.clock.advance(seconds=2 * DAY_S)
    await report(control, **{"hmac-v1": 1, "hmac-v2": 3})
    old, new = (await describe(control)).use
    assert (old.last_hour, old.last_day, new.last_day) == (1, 1, 3)
    assert (old.safe_to_retire, "1 command " in old.retire_reason) == (False, True)
    control.clock.advance(seconds=2 * DAY_S + 3600)
    await report(control, **{"hmac-v2": 3})
    old, new = (await describe(control)).use
    assert (old.safe_to_retire, new.safe_to_retire) == (True, False)


async def rehearse(control: Control, version: str) -> wire.KeysetStatus:
    request = wire.SetMinimumKeyRequest(source=SOURCE, key_version=version, rehearse=True)
    return await control.sign(ADMIN, "SetMinimumKey", request, wire.KeysetStatus)


async def test_a_rehearsal_accepts_and_tells_what_would_be_refused_over_a_restart(
    control: Control, billing: str
) -> None:
    await rotate(control)
    await poll(control, billing)
    begun = await rehearse(control, "hmac-v2")
    assert (begun.rehearsal.minimum, begun.rehearsal.would_refuse) == ("hmac-v2", 0)
    await report(control, **{"hmac-v1": 4, "hmac-v2": 30})
    await control.stop_signer()
    await control.start_signer()
    await report(control, **{"hmac-v1": 1})
    told = await describe(control)
    assert (told.rehearsal.would_refuse, told.keyset.minimum) == (5, "")
    assert told.keyset.version[0].state == wire.KEY_STATE_PREVIOUS, "nothing was refused"
    with pytest.raises(NotFound):
        await rehearse(control, "hmac-v9")
    assert not (await rehearse(control, "")).HasField("rehearsal")


async def test_legacy_use_becomes_an_event_with_exactly_the_catalogues_fields(
    control: Control, billing: str
) -> None:
    await poll(control, billing)
    control.clock.advance(seconds=1)
    await rotate(control)
    control.clock.advance(seconds=6 * DAY_S)
    await report(control, **{"hmac-v1": 5})
    told = await events(control)
    assert [event.name for event in told.event] == [
        "snavio.secret.legacy_key_used",
        "snavio.secret.key_expiry_imminent",
    ]
    for event in told.event:
        fields = orjson.loads(event.fields)
        assert set(fields) == {"version_id", "source", "time_of_last_config_poll"}
        assert (fields["version_id"], fields["source"]) == ("hmac-v1", SOURCE)
    assert [one.seq for one in (await events(control, since=1, epoch=told.epoch)).event] == [2]
    assert len((await events(control, since=2, epoch=told.epoch + 1)).event) == 2


async def test_key_sets_are_described_in_pages_by_name(control: Control) -> None:
    for name in ("zoo", "ant"):
        request = wire.CreateKeysetRequest(source=f"acme/{name}")
        await control.sign(ADMIN, "CreateKeyset", request, wire.KeysetStatus)
    page = wire.DescribeKeysetsRequest(limit=2)
    first = await control.sign(ADMIN, "DescribeKeysets", page, wire.DescribeKeysetsResponse)
    assert ([status.keyset.source for status in first.keyset], first.more) == (
        ["acme/ant", SOURCE],
        True,
    )
    page.after_source = SOURCE
    rest = await control.sign(ADMIN, "DescribeKeysets", page, wire.DescribeKeysetsResponse)
    assert ([status.keyset.source for status in rest.keyset], rest.more) == (["acme/zoo"], False)
    with pytest.raises(NotFound):
        await describe(control, "acme/nobody")


async def test_answers_to_operators_hold_no_secret(control: Control, billing: str) -> None:
    await rotate(control)
    secrets = [version.secret for version in (await poll(control, billing)).keyset.version]
    await report(control, **{"hmac-v1": 5})
    answers: list[ProtoMessage] = [
        await describe(control),
        await minimum(control, "hmac-v2"),
        await events(control),
    ]
    for answer in answers:
        assert not any(secret in answer.SerializeToString() for secret in secrets)


async def test_two_rotations_over_the_wire_have_one_winner(control: Control) -> None:
    request = wire.RotateKeysetRequest(source=SOURCE)
    done = await asyncio.gather(
        *(control.sign(ADMIN, "RotateKeyset", request, wire.KeysetStatus) for _ in range(3)),
        return_exceptions=True,
    )
    assert sorted(type(one).__name__ for one in done) == ["Conflict", "Conflict", "KeysetStatus"]


async def test_signer_that_was_away_rotates_what_is_overdue_when_it_starts(tmp_path: Path) -> None:
    async with control_plane(tmp_path, signer_settings=SignerSettings(rotate_every_s=2 * DAY_S)) as control:
        request = wire.CreateKeysetRequest(source=SOURCE)
        made = await control.sign(ADMIN, "CreateKeyset", request, wire.KeysetStatus)
        assert made.next_rotation_unix_ns > control.clock.unix_ns()
        await control.stop_signer()
        control.clock.advance(seconds=3 * DAY_S)
        for _ in range(2):
            await control.start_signer()
            status = await describe(control)
            assert [version.version for version in status.keyset.version] == ["hmac-v1", "hmac-v2"]
            assert status.next_rotation_unix_ns > control.clock.unix_ns()
            await control.stop_signer()


# -- Ed25519 ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def scoped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Control]:
    monkeypatch.setattr(bootstrap, "SERVICES", (*bootstrap.SERVICES, "relay"))
    settings = SignerSettings(distribution_delay_s=10.0, overlap_s=3600.0)
    async with control_plane(tmp_path, signer_settings=settings) as running:
        yield running


async def provision(control: Control, scope: str, *, by: str = "registry") -> wire.PublicKeys:
    return await control.sign(by, "ProvisionScope", wire.ProvisionScopeRequest(scope=scope), wire.PublicKeys)


async def sign(
    control: Control, scope: str, *messages: bytes, key_id: str = "", by: str = "relay"
) -> wire.SignResponse:
    request = wire.SignRequest(scope=scope, key_id=key_id, message=messages)
    return await control.sign(by, "Sign", request, wire.SignResponse)


async def public_keys(
    control: Control, scope: str, *, by: str = "shield", include_ended: bool = False
) -> wire.PublicKeys:
    request = wire.GetPublicKeysRequest(scope=scope, include_ended=include_ended)
    return await control.sign(by, "GetPublicKeys", request, wire.PublicKeys)


async def rotate_scope(control: Control, scope: str, *, emergency: bool = False) -> wire.PublicKeys:
    request = wire.RotateScopeRequest(scope=scope, emergency=emergency)
    return await control.sign(ADMIN, "RotateScope", request, wire.PublicKeys)


async def test_batch_is_signed_and_verifies_under_the_public_key(scoped: Control) -> None:
    await provision(scoped, "tenant:acme")
    messages = [b"", b"one", *(b"%d" % n for n in range(100))]
    signed = await sign(scoped, "tenant:acme", *messages)
    (key,) = (await public_keys(scoped, "tenant:acme")).key
    assert signed.key_id == key.key_id
    assert not ed25519_is_weak(key.public_key)
    assert all(
        ed25519_verify(key.public_key, message, signature)
        for message, signature in zip(messages, signed.signature, strict=True)
    )
    assert not ed25519_verify(key.public_key, b"two", signed.signature[1])


async def test_scope_without_keys_is_not_provisioned(scoped: Control) -> None:
    for asked in (
        sign(scoped, "tenant:acme", b"x"),
        public_keys(scoped, "tenant:acme"),
        rotate_scope(scoped, "tenant:acme"),
    ):
        with pytest.raises(NotFound) as refusal:
            await asked
        assert refusal.value.reason == "not-provisioned"


async def test_provisioning_twice_keeps_the_first_key(scoped: Control) -> None:
    first = await provision(scoped, "platform", by=ADMIN)
    assert await provision(scoped, "platform") == first


async def test_rotation_overlaps_and_is_told(scoped: Control) -> None:
    old = (await provision(scoped, "tenant:acme")).active_key_id
    keys = await rotate_scope(scoped, "tenant:acme")
    new = keys.key[1]
    assert (len(keys.key), keys.active_key_id) == (2, old)
    with pytest.raises(Conflict) as refusal:
        await sign(scoped, "tenant:acme", b"x", key_id=new.key_id)
    assert refusal.value.reason == "key-not-active"
    scoped.clock.advance(seconds=10)
    assert (await sign(scoped, "tenant:acme", b"x")).key_id == new.key_id
    assert (await sign(scoped, "tenant:acme", b"x", key_id=old)).key_id == old
    assert [key.key_id for key in (await public_keys(scoped, "tenant:acme")).key] == [old, new.key_id]
    (event,) = (await events(scoped)).event
    fields = orjson.loads(event.fields)
    assert event.name == "signing_key_rotated"
    assert (fields["old_key_id"], fields["new_key_id"], fields["scope_id"]) == (old, new.key_id, "acme")
    assert b64decode(fields["new_public_key"]) == new.public_key
    scoped.clock.advance(seconds=3600)
    assert [key.key_id for key in (await public_keys(scoped, "tenant:acme")).key] == [new.key_id]


async def test_emergency_leaves_nothing_that_the_old_key_could_sign(scoped: Control) -> None:
    old = (await provision(scoped, "platform")).active_key_id
    keys = await rotate_scope(scoped, "platform", emergency=True)
    assert [key.key_id for key in keys.key] == [keys.active_key_id]
    with pytest.raises(NotFound):
        await sign(scoped, "platform", b"x", key_id=old)


async def exported(control: Control) -> ArchiveManifest:
    """A manifest as Relay publishes it now."""
    manifest = ArchiveManifest(1, control.clock.unix_ns(), ())
    named = replace(manifest, key_id=(await public_keys(control, "platform")).active_key_id)
    signed = await sign(control, "platform", named.signed_form())
    assert signed.key_id == named.key_id
    return replace(named, signature=signed.signature[0])


async def believed(control: Control, manifest: ArchiveManifest, *, include_ended: bool = True) -> bool:
    answer = await public_keys(control, "platform", by=ADMIN, include_ended=include_ended)
    keys = [
        VerifyingKey(key.key_id, key.public_key, key.valid_from_unix_ns, key.valid_until_unix_ns)
        for key in answer.key
    ]
    return verified(manifest, manifest.signed_form(), keys)


async def test_a_manifest_outlives_the_key_that_signed_it(scoped: Control) -> None:
    await provision(scoped, "platform")
    first = await exported(scoped)
    await rotate_scope(scoped, "platform")
    scoped.clock.advance(seconds=2 * 3600)
    # Closed, and still in the store; then gone with its seed, over a restart too.
    assert (await believed(scoped, first), await believed(scoped, first, include_ended=False)) == (
        True,
        False,
    )
    await rotate_scope(scoped, "platform")
    scoped.clock.advance(seconds=2 * 3600)
    await scoped.stop_signer()
    await scoped.start_signer()
    second = await exported(scoped)
    assert await believed(scoped, first)
    assert await believed(scoped, second)
    # Only for its own time: a date after its end is forged, even with the key.
    assert not await believed(scoped, replace(first, exported_unix_ns=scoped.clock.unix_ns()))
    with pytest.raises(NotFound):
        await sign(scoped, "platform", b"x", key_id=first.key_id)


async def test_a_key_that_an_emergency_ended_makes_nothing_of_the_past_believed(scoped: Control) -> None:
    await provision(scoped, "platform")
    old = await exported(scoped)
    await rotate_scope(scoped, "platform")
    scoped.clock.advance(seconds=2 * 3600)
    await rotate_scope(scoped, "platform")
    scoped.clock.advance(seconds=60)
    stolen = await exported(scoped)
    assert await believed(scoped, stolen)
    await rotate_scope(scoped, "platform", emergency=True)
    assert not await believed(scoped, stolen)
    # Its seed was wiped before the theft.
    assert await believed(scoped, old)


@pytest.mark.parametrize("emergency", [False, True])
async def test_rotation_is_told_again_after_a_restart_under_the_same_id(
    scoped: Control, emergency: bool
) -> None:
    await provision(scoped, "tenant:acme")
    await rotate_scope(scoped, "tenant:acme", emergency=emergency)
    (before,) = (await events(scoped)).event
    await scoped.stop_signer()
    scoped.clock.advance(seconds=60)
    await scoped.start_signer()
    (again,) = (await events(scoped)).event
    assert again == before
    await scoped.stop_signer()
    scoped.clock.advance(seconds=3600 + DAY_S)
    await scoped.start_signer()
    assert list((await events(scoped)).event) == []


async def test_keys_of_scopes_survive_a_restart(scoped: Control) -> None:
    before = await provision(scoped, "platform")
    await scoped.stop_signer()
    await scoped.start_signer()
    assert await public_keys(scoped, "platform") == before
    assert (await sign(scoped, "platform", b"x", by="registry")).key_id == before.active_key_id


@pytest.mark.parametrize("by", ["shield", "fast", "slow", "mailbox", ADMIN])
async def test_nobody_but_relay_and_registry_has_things_signed(scoped: Control, by: str) -> None:
    await provision(scoped, "platform")
    with pytest.raises(NotAllowed):
        await sign(scoped, "platform", b"x", by=by)


async def test_registry_does_not_speak_for_a_tenant(scoped: Control) -> None:
    await provision(scoped, "tenant:acme")
    with pytest.raises(NotAllowed) as refusal:
        await sign(scoped, "tenant:acme", b"x", by="registry")
    assert refusal.value.reason == "not-your-scope"


async def test_tenant_reads_the_keys_of_the_platform_and_its_own_and_no_others(scoped: Control) -> None:
    for scope in ("platform", "tenant:acme", "tenant:rival"):
        await provision(scoped, scope)
    await scoped.certify("tenant/acme/service/billing", "billing")
    await scoped.certify("tenant/acme/principal/ci", "ci")
    for caller in ("billing", "ci"):
        for scope in ("platform", "tenant:acme"):
            assert (await public_keys(scoped, scope, by=caller)).key
        # The same answer whether there is such a tenant or not.
        for scope in ("tenant:rival", "tenant:nobody", "nonsense"):
            with pytest.raises(NotAllowed) as refusal:
                await public_keys(scoped, scope, by=caller)
            assert refusal.value.reason == "not-your-scope"


async def test_too_many_or_too_large_messages_and_bad_scopes_are_refused(scoped: Control) -> None:
    await provision(scoped, "platform")
    for messages in ([b""] * 4097, [b"x" * (1 << 20), b"y"]):
        with pytest.raises(BadRequest):
            await sign(scoped, "platform", *messages)
    for scope in ("", "acme", "tenant:../x"):
        with pytest.raises(BadRequest):
            await provision(scoped, scope)


async def test_a_principal_sees_the_keys_of_its_tenant_and_of_no_other(control: Control) -> None:
    for source in ("acme-2/shop", "acme/bot", "rival/shop"):
        await control.sign(ADMIN, "CreateKeyset", wire.CreateKeysetRequest(source=source), wire.KeysetStatus)
    await control.certify("tenant/acme/principal/ci", "ci")
    heard = wire.KeysetChangesRequest(holder="shield-of-the-house:1", good_for_ms=180_000)
    await control.sign("shield", "KeysetChanges", heard, wire.KeysetChangesResponse)

    async def described(source: str = "", after: str = "", limit: int = 0) -> wire.DescribeKeysetsResponse:
        request = wire.DescribeKeysetsRequest(source=source, after_source=after, limit=limit)
        return await control.sign("ci", "DescribeKeysets", request, wire.DescribeKeysetsResponse)

    for after in ("", "aaa", "acme/"):
        found = await described(after=after)
        assert [status.keyset.source for status in found.keyset] == ["acme/billing", "acme/bot"]
        assert not found.more
    first = await described(limit=1)
    assert ([status.keyset.source for status in first.keyset], first.more) == (["acme/billing"], True)
    assert [s.keyset.source for s in (await described(after="acme/billing", limit=1)).keyset] == ["acme/bot"]
    (own,) = (await described(SOURCE)).keyset
    assert (own.primary, [holder.name for holder in own.holder]) == ("hmac-v1", [""])
    assert not any(version.secret for version in own.keyset.version)
    for foreign in ("rival/shop", "rival/nobody", "acme-2/shop"):
        with pytest.raises(NotAllowed) as refusal:
            await described(foreign)
        assert refusal.value.reason == "not-owner"
    for method, request in (
        ("RotateKeyset", wire.RotateKeysetRequest(source=SOURCE)),
        ("RevokeKey", wire.RevokeKeyRequest(source=SOURCE, key_version="hmac-v1")),
    ):
        with pytest.raises(NotAllowed):
            await control.sign("ci", method, request, wire.KeysetStatus)


async def many(control: Control, *scopes: wire.ScopeMessages) -> list[wire.ScopeSignatures]:
    answer = await control.sign(
        "relay", "SignMany", wire.SignManyRequest(scope=scopes), wire.SignManyResponse
    )
    return list(answer.scope)


async def test_one_call_signs_for_many_tenants_and_one_without_a_key_holds_up_no_other(
    control: Control,
) -> None:
    keys = {}
    for tenant in ("acme", "globex"):
        request = wire.ProvisionScopeRequest(scope=f"tenant:{tenant}")
        (keys[tenant],) = (await control.sign("relay", "ProvisionScope", request, wire.PublicKeys)).key
    acme, nobody, malformed, stale, asked = await many(
        control,
        wire.ScopeMessages(scope="tenant:acme", key_id=keys["acme"].key_id, message=[b"one", b"two"]),
        wire.ScopeMessages(scope="tenant:nobody", message=[b"x"]),
        wire.ScopeMessages(scope="mailbox", message=[b"x"]),
        wire.ScopeMessages(scope="tenant:globex", key_id="ed25519-other", message=[b"x"]),
        wire.ScopeMessages(scope="tenant:globex"),
    )
    assert [one.reason for one in (acme, nobody, malformed, stale, asked)] == [
        "",
        "not-provisioned",
        "bad-field",
        "unknown-key",
        "",
    ]
    for message, signature in zip((b"one", b"two"), acme.signature, strict=True):
        assert ed25519_verify(keys["acme"].public_key, message, signature)
        assert not ed25519_verify(keys["globex"].public_key, message, signature)
    assert not nobody.signature and not stale.signature
    # Without messages it says which key signs.
    assert (asked.key_id, list(asked.signature)) == (keys["globex"].key_id, [])


async def test_a_call_for_many_has_the_bounds_of_one(control: Control) -> None:
    with pytest.raises(BadRequest):
        await many(control, *[wire.ScopeMessages(scope="tenant:acme")] * 1025)
    with pytest.raises(BadRequest):
        await many(control, wire.ScopeMessages(scope="tenant:acme", message=[b"x"] * 4097))
    (refused,) = await many(
        control,
        wire.ScopeMessages(scope="platform", message=[b'{"kind":"hmac","type":"snavio.snapshot"}']),
    )
    assert (refused.reason, list(refused.signature)) == ("not-your-snapshot", [])
    for caller in ("registry", ADMIN):
        with pytest.raises(NotAllowed):
            await control.sign(caller, "SignMany", wire.SignManyRequest(), wire.SignManyResponse)
