"""Enrolment of a principal without a certificate, and every caller that must be refused."""

from __future__ import annotations

import asyncio
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from services.signer.certificates.issuing import CertificateIssuer
from services.signer.settings import SignerSettings
from snavio.clock import ManualClock
from snavio.domain.enrolment import MAX_OPEN_PER_TENANT, Token, parse_token
from snavio.errors import (
    BadRequest,
    Conflict,
    NotAllowed,
    NotFound,
    Saturated,
    SnavioError,
    StateError,
    Unavailable,
)
from snavio.rpc.enrolment_server import CALLS_PER_ADDRESS
from snavio.rpc.throttle import Rates
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control, control_plane
from tests.support.enrolling import (
    METHOD,
    ask,
    bad_requests,
    door,
    knock,
    newcomer,
    request_with,
    spiffe,
    token_for,
)
from tests.support.raw_http2 import RawHttp2, tls

CI = spiffe("tenant/acme/principal/ci")


async def refused(control: Control, token: str, reason: str = "enrolment-refused") -> None:
    # So many attempts are throttled; that is another test's subject.
    control.clock.advance(seconds=10)
    with pytest.raises(SnavioError) as refusal:
        await ask(control, token=token)
    assert refusal.value.reason == reason


async def test_token_yields_a_principals_certificate_that_works(control: Control) -> None:
    enrolled = await newcomer(control, await token_for(control))
    assert enrolled.identity.spiffe_id == CI
    folder = control.mesh.certificates("ci")
    assert stat.S_IMODE((folder / "key.pem").stat().st_mode) == 0o600
    # A principal may ask, and is refused only because there is no such service.
    with pytest.raises(NotAllowed) as refusal:
        await control.sign(
            "ci",
            "AssumeService",
            sig.AssumeServiceRequest(source="acme/billing"),
            sig.IssueCertificateResponse,
        )
    assert refusal.value.reason == "unregistered-service"


async def test_tenant_comes_with_a_token_once(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as control:
        request = reg.CreateTenantRequest(tenant=reg.Tenant(tenant="acme"), principal="owner")
        made = await control.ask(ADMIN, "CreateTenant", request, reg.CreateTenantResponse)
        again = await control.ask(ADMIN, "CreateTenant", request, reg.CreateTenantResponse)
        assert made.changed
        assert made.enrolment_expires_unix_ns == control.clock.unix_ns() + 86_400 * 10**9
        assert (again.changed, again.enrolment_token) == (False, "")
        enrolled = await newcomer(control, made.enrolment_token, name="")
        assert enrolled.identity.spiffe_id == spiffe("tenant/acme/principal/owner")


async def test_token_works_once_and_not_after_a_restart_either(control: Control) -> None:
    token = await token_for(control)
    await newcomer(control, token)
    await refused(control, token)
    await control.stop_signer()
    await control.start_signer()
    await refused(control, token)


@pytest.mark.parametrize("principal", ["", "ci"])
async def test_two_newcomers_with_one_token_make_one_principal(control: Control, principal: str) -> None:
    token = await token_for(control, principal=principal)
    attempts = await asyncio.gather(*(ask(control, token=token) for _ in range(6)), return_exceptions=True)
    assert sum(not isinstance(attempt, BaseException) for attempt in attempts) == 1
    # A late caller finds the token used, or the name taken by the first.
    reasons = {attempt.reason for attempt in attempts if isinstance(attempt, SnavioError)}
    assert reasons <= {"enrolment-refused", "name-taken"}


async def test_signer_that_dies_between_taking_and_answering_gives_no_second_certificate(
    control: Control,
) -> None:
    token = await token_for(control)
    first = asyncio.create_task(ask(control, token=token))
    await asyncio.sleep(0)
    await control.stop_signer()
    await control.start_signer()
    won = not isinstance((await asyncio.gather(first, return_exceptions=True))[0], BaseException)
    control.clock.advance(seconds=10)
    second = (await asyncio.gather(ask(control, token=token), return_exceptions=True))[0]
    listed = await control.sign(
        ADMIN,
        "ListCertificates",
        sig.ListCertificatesRequest(spiffe_id=CI),
        sig.ListCertificatesResponse,
    )
    assert len(listed.certificate) <= 1
    assert not (won and not isinstance(second, BaseException))


async def test_failure_after_the_token_is_taken_costs_the_token_and_gives_no_certificate(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_arguments: object, **_options: object) -> None:
        raise Unavailable("The disk is full.")

    token = await token_for(control)
    with monkeypatch.context() as broken:
        broken.setattr(CertificateIssuer, "certify", fail)
        await refused(control, token, "unavailable")
    await refused(control, token)


async def test_a_tenant_at_its_rate_of_certificates_costs_a_newcomer_time_and_not_the_token(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await token_for(control)
    with monkeypatch.context() as busy:
        # As while a thief renews certificates of this tenant as fast as possible.
        busy.setattr(Rates, "take", lambda _rates, name: 5.0 if name == "acme" else 0.0)
        await refused(control, token, "renewal-rate")
    assert (await newcomer(control, token)).identity.spiffe_id == CI


async def test_expired_token_is_refused_and_a_clock_set_back_does_not_revive_it(control: Control) -> None:
    token = await token_for(control, ttl_s=60)
    control.clock.advance(seconds=61)
    await refused(control, token)
    await control.stop_signer()
    control.clock = ManualClock(control.clock.unix_ns() - 3600 * 10**9)
    await control.start_signer()
    await refused(control, token)


async def test_token_that_ends_while_nobody_looks_stays_ended_too(control: Control) -> None:
    token = await token_for(control, ttl_s=60)
    control.clock.advance(seconds=61)
    await control.stop_signer()
    control.clock = ManualClock(control.clock.unix_ns() - 3600 * 10**9)
    await control.start_signer()
    await refused(control, token)


async def test_tokens_made_after_the_clock_was_set_back_live_for_their_time(control: Control) -> None:
    await token_for(control, ttl_s=60)
    await control.stop_signer()
    control.clock = ManualClock(control.clock.unix_ns() - 3600 * 10**9)
    await control.start_signer()
    good, late = await token_for(control, ttl_s=60), await token_for(control, ttl_s=60)
    control.clock.advance(seconds=59)
    assert (await newcomer(control, good)).identity.spiffe_id == CI
    control.clock.advance(seconds=2)
    await refused(control, late)


async def test_unknown_used_and_expired_tokens_get_the_same_answer(control: Control) -> None:
    used, expired = await token_for(control), await token_for(control, ttl_s=60)
    unknown = Token(parse_token(used).fingerprint, bytes(32)).text
    elsewhere = Token(bytes(32), parse_token(used).secret).text
    await newcomer(control, used)
    control.clock.advance(seconds=61)
    answers = set()
    for token in (used, expired, unknown, elsewhere):
        control.clock.advance(seconds=10)
        with pytest.raises(NotAllowed) as refusal:
            await ask(control, token=token)
        answers.add((refusal.value.reason, str(refusal.value)))
    assert len(answers) == 1


async def test_garbled_token_is_named_as_such(control: Control) -> None:
    token = await token_for(control)
    swapped = token[:-1] + ("a" if token[-1] != "a" else "b")
    for text in (swapped, "", "snv1", token.upper(), token + "x", "x" * 10_000, "snv1.\x00.ß"):
        await refused(control, text, "bad-token")
        with pytest.raises(BadRequest):
            await newcomer(control, text)
    assert (await newcomer(control, token)).identity.spiffe_id == CI


async def test_bad_certificate_requests_are_refused_and_leave_the_token_good(control: Control) -> None:
    token = await token_for(control)
    for what, csr_pem in bad_requests().items():
        control.clock.advance(seconds=10)
        with pytest.raises(BadRequest) as refusal:
            await ask(control, token=token, csr_pem=csr_pem)
        assert refusal.value.reason == "bad-csr", what
    assert (await newcomer(control, token)).identity.spiffe_id == CI


async def test_request_that_names_another_tenant_is_refused(control: Control) -> None:
    token = await token_for(control)
    for name in ("tenant/rival/principal/ci", "tenant/acme/service/ci", "operator/admin", "mesh/shield"):
        control.clock.advance(seconds=10)
        with pytest.raises(BadRequest) as refusal:
            await ask(control, token=token, csr_pem=request_with(None, spiffe(name)))
        assert refusal.value.reason == "csr-names-another"
    answer = await ask(control, token=token, csr_pem=request_with(None, CI))
    assert answer.spiffe_id == CI


async def test_principal_needs_a_plain_name(control: Control) -> None:
    token = await token_for(control)
    for name in ("", "Ci", "a/b", "x" * 64, "ci\n", "../admin", "x" * 10_000):
        with pytest.raises(BadRequest):
            await ask(control, token=token, name=name)


async def test_token_for_one_principal_makes_no_other(control: Control) -> None:
    token = await token_for(control, principal="ci")
    with pytest.raises(NotAllowed) as refusal:
        await ask(control, token=token, name="owner")
    assert refusal.value.reason == "wrong-name"
    assert (await ask(control, token=token, name="")).spiffe_id == CI


async def test_open_token_takes_nobodys_name(control: Control) -> None:
    await newcomer(control, await token_for(control))
    with pytest.raises(Conflict) as refusal:
        await ask(control, token=await token_for(control), name="ci")
    assert refusal.value.reason == "name-taken"
    # An operator who intends it names the principal in the token.
    assert (await ask(control, token=await token_for(control, principal="ci"))).spiffe_id == CI


async def test_open_token_takes_no_name_whose_certificate_has_ended_either(tmp_path: Path) -> None:
    async with control_plane(tmp_path, signer_settings=SignerSettings(principal_ttl_s=60)) as control:
        await newcomer(control, await token_for(control))
        # Long enough for the record of the certificate to be forgotten, too.
        control.clock.advance(seconds=60 + 2 * 86_400)
        for name in ("other", "third"):
            await ask(control, token=await token_for(control), name=name)
        with pytest.raises(Conflict) as refusal:
            await ask(control, token=await token_for(control), name="ci")
        assert refusal.value.reason == "name-taken"
        assert (await ask(control, token=await token_for(control, principal="ci"))).spiffe_id == CI


async def test_token_for_a_tenant_or_a_principal_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as control:

        async def token(tenant: str, caller: str = ADMIN, **more: Any) -> Any:
            request = reg.EnrolmentTokenRequest(tenant=tenant, **more)
            return await control.ask(caller, "CreateEnrolment", request, reg.EnrolmentToken)

        with pytest.raises(NotFound) as refusal:
            await token("acme")
        assert refusal.value.reason == "no-tenant"
        # Nor at Signer itself, which knows of no tenants.
        with pytest.raises(NotAllowed):
            await control.sign(
                ADMIN,
                "CreateEnrolment",
                sig.CreateEnrolmentRequest(tenant="acme"),
                sig.CreateEnrolmentResponse,
            )
        await control.ask(
            ADMIN,
            "CreateTenant",
            reg.CreateTenantRequest(tenant=reg.Tenant(tenant="acme")),
            reg.CreateTenantResponse,
        )
        with pytest.raises(NotFound) as nobody:
            await token("acme", principal="ci")
        assert nobody.value.reason == "no-principal"
        principal = reg.Entry(principal=reg.Principal(tenant="acme", principal="ci"))
        await control.ask(
            ADMIN, "Apply", reg.ApplyRequest(write=[reg.Write(entry=principal)]), reg.ApplyResponse
        )
        made = await token("acme", principal="ci", ttl_seconds=60)
        assert made.expires_unix_ns == control.clock.unix_ns() + 60 * 10**9
        enrolled = await newcomer(control, made.token, name="")
        assert enrolled.identity.spiffe_id == CI
        living = await control.sign(
            ADMIN, "ListCertificates", sig.ListCertificatesRequest(spiffe_id=CI), sig.ListCertificatesResponse
        )
        assert living.certificate[0].issued_to == "token of spiffe://snavio.local/operator/admin"
        for caller in ("ci", "fast"):
            with pytest.raises(NotAllowed):
                await token("acme", caller)


async def test_two_open_tokens_make_one_principal_of_a_name(control: Control) -> None:
    tokens = [await token_for(control) for _ in range(4)]
    attempts = await asyncio.gather(*(ask(control, token=token) for token in tokens), return_exceptions=True)
    assert sum(not isinstance(attempt, BaseException) for attempt in attempts) == 1
    assert {attempt.reason for attempt in attempts if isinstance(attempt, SnavioError)} == {"name-taken"}


async def test_token_of_another_installation_is_never_sent(control: Control, tmp_path: Path) -> None:
    async with control_plane(tmp_path / "other", fresh=True) as other:
        token = await token_for(other)
        with pytest.raises(NotAllowed) as refusal:
            await newcomer(control, token)
        assert refusal.value.reason == "wrong-installation"
        # It is still good where it is from.
        assert (await newcomer(other, token)).identity.spiffe_id == CI


async def test_folder_that_cannot_take_the_certificate_does_not_cost_the_token(
    control: Control, tmp_path: Path
) -> None:
    token = await token_for(control)
    with pytest.raises(StateError) as refusal:
        await newcomer(control, token, folder="shield")
    assert refusal.value.reason == "folder-taken"
    (control.mesh.certificates("blocked")).write_bytes(b"a file")
    with pytest.raises(StateError) as refusal:
        await newcomer(control, token, folder="blocked")
    assert refusal.value.reason == "folder-unwritable"
    assert (await newcomer(control, token)).identity.spiffe_id == CI


async def test_where_nobody_listens_it_says_so(control: Control) -> None:
    token = await token_for(control)
    await control.stop_signer()
    control.signer = None
    from snavio.sdk.enrolment import enroll

    with pytest.raises(Unavailable):
        await enroll(token, address="127.0.0.1:1", folder=control.mesh.certificates("ci"))
    for address in ("nowhere", "a:b", "127.0.0.1:99999999"):
        with pytest.raises(SnavioError):
            await enroll(token, address=address, folder=control.mesh.certificates("ci"))


async def test_the_door_serves_enrolment_and_health_and_nothing_else(control: Control) -> None:
    assert await knock(control, "/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
    for method in (
        "/snavio.v1.Signer/IssueCertificate",
        "/snavio.v1.Signer/Denylist",
        "/snavio.v1.Signer/CreateEnrolment",
        "/snavio.v1.Introspection/Status",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ):
        with pytest.raises(NotFound):
            await knock(control, method, b"")
    with pytest.raises(BadRequest):
        await knock(control, METHOD, b"\xff\xff\xff")
    with pytest.raises(BadRequest) as refusal:
        await knock(control, METHOD, b"x" * 100_000)
    assert refusal.value.reason == "oversized"


async def test_the_mesh_port_does_not_enrol(control: Control) -> None:
    from snavio.rpc.channel import MeshChannel
    from snavio.rpc.credentials import CertificateFiles
    from snavio.v1.enrolment_pb2 import EnrollRequest, EnrollResponse

    files = CertificateFiles.in_folder(control.mesh.certificates(ADMIN))
    channel = MeshChannel(control.mesh.signer, files=files, service="signer")
    try:
        with pytest.raises(NotFound):
            await channel.call(METHOD, EnrollRequest(), EnrollResponse, timeout_s=5.0)
    finally:
        await channel.close()


async def test_address_that_asks_too_often_is_told_to_wait(control: Control) -> None:
    bad = Token(bytes(32), bytes(32)).text
    reasons = []
    for _ in range(14):
        with pytest.raises(SnavioError) as refusal:
            await ask(control, token=bad)
        reasons.append(refusal.value.reason)
    assert reasons == ["enrolment-refused"] * 10 + ["saturated"] * 4
    assert isinstance(refusal.value, Saturated)
    assert 0 < refusal.value.retry_after_ms <= 2000
    control.clock.advance(seconds=2)
    await refused(control, bad)


async def test_tokens_that_nobody_uses_are_bounded(control: Control) -> None:
    for _ in range(MAX_OPEN_PER_TENANT):
        await token_for(control)
    with pytest.raises(Saturated) as refusal:
        await token_for(control)
    assert refusal.value.reason == "too-many-tokens"
    await token_for(control, tenant="rival")
    control.clock.advance(seconds=86_401)
    await token_for(control)


async def test_bad_token_wishes_are_refused(control: Control) -> None:
    for tenant, principal, ttl_s in (
        ("", "", 0),
        ("A", "", 0),
        ("x" * 10_000, "", 0),
        ("acme", "A B", 0),
        ("acme", "ci\n", 0),
        ("acme", "", 604_801),
    ):
        with pytest.raises(BadRequest):
            await token_for(control, tenant=tenant, principal=principal, ttl_s=ttl_s)


async def test_no_token_reaches_logs_errors_or_the_disk(control: Control) -> None:
    with structlog.testing.capture_logs() as logs:
        token = await token_for(control)
        secret = token.split(".")[2]
        texts = []
        # The first letter, all of whose bits count, and another than it is: a fixed letter is right once in 32 runs.
        forged = token.replace(f".{secret}", f".{'b' if secret[0] == 'a' else 'a'}{secret[1:]}")
        for attempt in (ask(control, token=token, name=""), ask(control, token=forged)):
            with pytest.raises(SnavioError) as refusal:
                await attempt
            texts += [repr(refusal.value), str(refusal.value)]
        await newcomer(control, token)
    assert logs
    parsed = parse_token(token)
    for form in (secret, parsed.secret.hex(), parsed.digest.hex()):
        assert form not in "\n".join([*texts, *map(repr, logs), repr(parsed)])
    written = b"".join(path.read_bytes() for path in control.mesh.state_dir.rglob("*") if path.is_file())
    for raw in (secret.encode(), parsed.secret, parsed.digest, parsed.digest.hex().encode()):
        assert raw not in written
    assert door(control)


async def test_a_stranger_with_many_open_calls_leaves_the_door_to_other_addresses(control: Control) -> None:
    token = await token_for(control)
    ca = (control.mesh.certificates("signer") / "ca.pem").read_bytes()
    async with AsyncExitStack() as stack:
        # As many as the door took of all strangers together, and some more; headers alone, of either method.
        for _ in range(20):
            flood = await stack.enter_async_context(
                RawHttp2(door(control), tls(None, ca), from_host="127.0.0.2")
            )
            for method in (METHOD, "/grpc.health.v1.Health/Check") * 2:
                await flood.call(method)
        held = control.signer.certificates.door.calls if control.signer else None
        assert held is not None
        async with asyncio.timeout(20.0):
            while held.refused < 50:
                await asyncio.sleep(0.01)
        assert held.held("127.0.0.2") <= CALLS_PER_ADDRESS
        assert await knock(control, "/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
        assert (await newcomer(control, token)).identity.spiffe_id == CI
        # A caller that never sends its request is disconnected.
        async with asyncio.timeout(20.0):
            while held.used:
                await asyncio.sleep(0.1)
