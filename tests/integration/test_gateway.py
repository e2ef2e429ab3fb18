"""The gateway: who may read a tenant's stream, from where, and what a request may be."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import pytest

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.server_sent_events import EventFrame, EventReader
from snavio.v1 import signer_pb2 as sig
from tests.support.https import Answer, HttpsClient
from tests.support.mesh import NAME, TARGET, DemoMesh
from tests.support.pki import Authority

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS: dict[str, dict[str, object]] = {
    "gateway": {"streams_per_tenant": 6, "opens_per_minute": 1000, "heartbeat_s": 0.2},
}
EVENTS = "/v1/tenants/acme/events"
WITHIN_S = 60.0


async def furnish(mesh: DemoMesh) -> None:
    """Principals of two tenants, one of which has no commands at all."""
    async with mesh.operator() as operator:
        await operator.create_tenant("globex")
        for tenant in ("acme", "globex", "nobody"):
            identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", tenant)
            await operator.certify(identity, mesh.certificates(f"{tenant}-ci"))


def client(mesh: DemoMesh, folder: str | None) -> HttpsClient:
    ca = mesh.certificates("gateway") / "ca.pem"
    return HttpsClient(
        mesh.processes.mesh.https, ca=ca, folder=None if folder is None else mesh.certificates(folder)
    )


async def get(mesh: DemoMesh, folder: str | None, path: str = EVENTS, **headers: str) -> Answer:
    return await client(mesh, folder).get(
        path, {name.replace("_", "-"): value for name, value in headers.items()}
    )


async def first_events(
    mesh: DemoMesh, folder: str, count: int, *, query: str = "", **headers: str
) -> list[EventFrame]:
    """The first events of a stream; commands are sent meanwhile, so that there are some."""
    found: list[EventFrame] = []
    reader = EventReader()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(WITHIN_S), client(mesh, folder).opened(EVENTS + query, named) as response:
        assert response.status == 200, await response.read()
        async with mesh.producer() as producer:
            chunks = response.content.iter_any().__aiter__()
            waiting = asyncio.ensure_future(anext(chunks))
            while len(found) < count:
                await producer.send(TARGET, NAME, b"x")
                done, _ = await asyncio.wait({waiting}, timeout=0.3)
                if done:
                    found += list(reader.feed(waiting.result()))
                    waiting = asyncio.ensure_future(anext(chunks))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    return found[:count]


async def test_without_a_certificate_nothing_is_read(mesh: DemoMesh) -> None:
    answer = await get(mesh, None)
    assert (answer.status, answer.reason) == (401, "no-identity")


async def test_a_certificate_of_another_ca_ends_the_handshake(mesh: DemoMesh, authority: Authority) -> None:
    folder = authority.principal("acme", "ci").certificate.parent
    ca = mesh.certificates("gateway") / "ca.pem"
    stranger = HttpsClient(mesh.processes.mesh.https, ca=ca, folder=folder)
    # With TLS 1.3 the client hears of it when it reads.
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await stranger.get(EVENTS)


@pytest.mark.parametrize(
    ("folder", "tenant", "expected"),
    [
        ("globex-ci", "acme", (403, "not-your-tenant")),
        # A stranger does not learn who exists.
        ("globex-ci", "nosuch", (403, "not-your-tenant")),
        ("nobody-ci", "nobody", (404, "unknown-tenant")),
        ("operator-admin", "nosuch", (404, "unknown-tenant")),
        ("acme-billing", "acme", (403, "cap-required")),
        ("shield", "acme", (403, "not-allowed")),
        ("job-spark", "acme", (403, "not-allowed")),
    ],
)
@pytest.mark.parametrize("what", ["events", "state", "config"])
async def test_a_tenant_is_read_by_its_own_and_by_operators(
    mesh: DemoMesh, folder: str, tenant: str, expected: tuple[int, str], what: str
) -> None:
    answer = await get(mesh, folder, f"/v1/tenants/{tenant}/{what}")
    if folder == "acme-billing" and what != "events":
        expected = (403, "not-allowed")
    assert (answer.status, answer.reason) == expected


BAD_IDS = [
    "-1", "+42", " 7 ", "4_2", "12.5", "1e10", "0x10", "abc", "١٢٣", "18446744073709551616", "99999999999999999999",
    "000000000000000000000", "7,8", "7;", "null", "NaN", "'1'", "1\u00a0", "²", "1-",
]  # fmt: skip


@pytest.mark.parametrize("header", BAD_IDS)
async def test_a_malformed_last_event_id_is_refused(mesh: DemoMesh, header: str) -> None:
    head = b"GET %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\nlast-event-id: %s\r\n\r\n"
    answer = await client(mesh, "acme-ci").raw(head % (EVENTS.encode(), header.encode()))
    assert answer.startswith(b"HTTP/1.1 400") and b"bad-last-event-id" in answer, (header, answer)


async def test_two_last_event_ids_are_refused(mesh: DemoMesh) -> None:
    answer = await client(mesh, "acme-ci").get(EVENTS, [("last-event-id", "1"), ("last-event-id", "2")])
    assert (answer.status, answer.reason) == (400, "bad-last-event-id")


async def test_a_reader_goes_on_where_it_stopped(mesh: DemoMesh) -> None:
    first, second = await first_events(mesh, "acme-ci", 2)
    assert first.event_id is not None and second.event_id is not None
    again = await first_events(mesh, "acme-ci", 2, last_event_id=first.event_id)
    assert again[0] == second
    assert int(again[1].event_id or 0) == int(second.event_id) + 1
    for event in (first, second):
        envelope = json.loads(event.data)
        assert (envelope["seq"], envelope["scope"]) == (event.event_id, "tenant:acme")


async def test_a_number_that_is_not_there_yet_is_waited_for(mesh: DemoMesh) -> None:
    (first,) = await first_events(mesh, "acme-ci", 1)
    ahead = str(int(first.event_id or 0) + 1_000_000)
    async with client(mesh, "acme-ci").opened(EVENTS, {"last-event-id": ahead}) as response:
        assert response.status == 200
        # A heartbeat and nothing else.
        assert (await response.content.readany()).startswith(b": ping")


async def test_what_is_no_longer_kept_is_410_with_a_signed_position(mesh: DemoMesh) -> None:
    await first_events(mesh, "acme-ci", 1)
    answer = await get(mesh, "acme-ci", last_event_id="0")
    assert (answer.status, answer.reason) == (410, "last_event_id_outside_replay_window")
    position = answer.document["position"]
    assert position["type"] == "snavio.stream.position" and len(position["signature"]) == 128
    state = (await get(mesh, "acme-ci", "/v1/tenants/acme/state")).document
    assert state["type"] == "snavio.stream.state" and len(state["signature"]) == 128
    assert int(state["position"]["high"]) >= int(position["high"])


async def test_a_reader_chooses_sources_and_types(mesh: DemoMesh) -> None:
    (found,) = await first_events(
        mesh, "acme-ci", 1, query="?source=acme/billing&type=snavio.telemetry.command"
    )
    assert json.loads(found.data)["payload"]["source"] == "acme/billing"
    for query, reason in (
        ("?type=nonsense", "bad-field"),
        ("?sources=acme/billing", "bad-field"),
        ("?only=deliveries", "bad-field"),
        ("?only=failures&only=failures", "bad-field"),
        ("?" + "&".join(f"source=acme/s{each}" for each in range(65)), "bad-field"),
    ):
        answer = await get(mesh, "acme-ci", EVENTS + query)
        assert (answer.status, answer.reason) == (400, reason), query


async def test_the_failures_of_one_source_are_one_filter_away(mesh: DemoMesh) -> None:
    position = (await get(mesh, "acme-ci", "/v1/tenants/acme/state")).document["position"]["high"]
    async with mesh.producer() as producer:
        await producer.send(TARGET, "nothing-such", b"x")
    # Deliveries come before and after it, in envelopes of their own seconds.
    await first_events(mesh, "acme-ci", 4)
    query = "?source=acme/billing&only=failures"
    found: list[EventFrame] = []
    reader = EventReader()
    async with asyncio.timeout(WITHIN_S):
        async with client(mesh, "acme-ci").opened(EVENTS + query, {"last-event-id": position}) as response:
            async for chunk in response.content.iter_any():
                found += list(reader.feed(chunk))
                if found:
                    break
    for event in found:
        events = json.loads(event.data)["payload"]["events"]
        assert any(one["event"] == "snavio.command.failed" for one in events)


async def capability(
    mesh: DemoMesh, *operations: str, holder: str, realm: str = "acme/snavio.telemetry"
) -> str:
    from snavio.rpc.channel import MeshChannel

    files = CertificateFiles.in_folder(mesh.certificates("acme-ci"))
    channel = MeshChannel(mesh.addresses["signer"], files=files, service="signer")
    try:
        request = sig.IssueCapabilityRequest(realm=realm, operation=operations, holder=holder)
        made = await channel.call(
            "/snavio.v1.Signer/IssueCapability", request, sig.IssueCapabilityResponse, timeout_s=10
        )
    finally:
        await channel.close()
    return made.capability


BILLING = "spiffe://snavio.local/tenant/acme/service/billing"


async def test_a_service_reads_under_a_capability_and_no_further(mesh: DemoMesh) -> None:
    from snavio.domain.capability import read_text
    from snavio.domain.caveat import Caveat

    whole = await capability(mesh, "stream", holder=BILLING)
    assert (await get(mesh, "acme-billing", snavio_capability=whole)).status == 200
    narrow = read_text(whole).attenuate(Caveat(sources=("acme/billing",))).text()
    assert (await get(mesh, "acme-billing", snavio_capability=narrow)).status == 200
    beyond = await get(mesh, "acme-billing", EVENTS + "?source=acme/bot", snavio_capability=narrow)
    assert (beyond.status, beyond.reason) == (403, "cap-scope")
    nothing = read_text(narrow).attenuate(Caveat(sources=("acme/bot",))).text()
    assert (await get(mesh, "acme-billing", snavio_capability=nothing)).reason == "cap-scope"


@pytest.mark.parametrize("case", ["stolen", "other operation", "other topic", "garbage", "widened"])
async def test_no_other_capability_opens_a_stream(mesh: DemoMesh, case: str) -> None:
    held = await capability(mesh, "stream", holder=BILLING)
    presented, folder, expected = {
        "stolen": (held, "acme-bot", (401, "cap-holder")),
        "other operation": (
            await capability(mesh, "recv", holder=BILLING),
            "acme-billing",
            (403, "cap-operation"),
        ),
        "other topic": (
            await capability(mesh, "stream", holder=BILLING, realm="acme/discord-bot"),
            "acme-billing",
            (403, "cap-topic"),
        ),
        "garbage": ("snvcap1.AAAA", "acme-billing", (401, "cap-malformed")),
        "widened": (held[:-4] + "AAAA", "acme-billing", (401, "cap-forged")),
    }[case]
    answer = await get(mesh, folder, snavio_capability=presented)
    assert (answer.status, answer.reason) == expected


async def test_a_revoked_capability_ends_its_stream(mesh: DemoMesh) -> None:
    from snavio.domain.capability import read_text

    held = await capability(mesh, "stream", holder=BILLING)
    async with asyncio.timeout(WITHIN_S):
        async with client(mesh, "acme-billing").opened(EVENTS, {"snavio-capability": held}) as response:
            assert response.status == 200
            from snavio.rpc.channel import MeshChannel

            files = CertificateFiles.in_folder(mesh.certificates("acme-ci"))
            channel = MeshChannel(mesh.addresses["signer"], files=files, service="signer")
            request = sig.RevokeCapabilityRequest(id=read_text(held).identifier.cap_id, reason="test")
            await channel.call(
                "/snavio.v1.Signer/RevokeCapability", request, sig.RevokeCapabilityResponse, timeout_s=10
            )
            await channel.close()
            async for _ in response.content.iter_any():
                pass
    answer = await get(mesh, "acme-billing", snavio_capability=held)
    assert (answer.status, answer.reason) == (401, "cap-revoked")


async def test_a_revoked_certificate_loses_its_quiet_stream(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "thief", "globex")
        serial = await operator.certify(identity, mesh.certificates("globex-thief"))
        async with asyncio.timeout(WITHIN_S):
            async with client(mesh, "globex-thief").opened("/v1/tenants/globex/events") as response:
                assert response.status == 200
                await operator.revoke_certificate(serial, reason="stolen")
                async for _ in response.content.iter_any():
                    pass
    answer = await get(mesh, "globex-thief", "/v1/tenants/globex/events")
    assert (answer.status, answer.reason) == (401, "certificate-revoked")


async def test_a_tenant_has_its_share_of_streams(mesh: DemoMesh) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            counts = [client(mesh, "acme-ci").opened(EVENTS) for _ in range(6)]
            opened = [await each.__aenter__() for each in counts]
            try:
                if any(each.status != 200 for each in opened):
                    # Streams of tests before this one may still be ending.
                    await asyncio.sleep(0.2)
                    continue
                refused = await get(mesh, "acme-ci")
                assert (refused.status, refused.reason) == (429, "tenant-share")
                assert int(refused.headers["retry-after"]) >= 1
                assert (await get(mesh, "globex-ci", "/v1/tenants/globex/events")).status == 200
                return
            finally:
                for each in counts:
                    await each.__aexit__(None, None, None)


async def test_times_of_keys_are_shown_without_secrets(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        await producer.send(TARGET, NAME, b"x")
    told = (await get(mesh, "acme-ci", "/v1/tenants/acme/config")).document
    (billing,) = [each for each in told["keysets"] if each["source"] == "acme/billing"]
    assert billing["primary"] == "hmac-v1" and billing["time_of_last_config_poll"]
    assert billing["versions"][0]["state"] == "primary"
    assert "secret" not in json.dumps(told)
    assert {each["source"].partition("/")[0] for each in told["keysets"]} == {"acme"}


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 300_000, 431),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (
            b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"
            % EVENTS.encode(),
            400,
        ),
        (
            b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            % EVENTS.encode(),
            405,
        ),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 90000\r\n\r\n"
            + b"x" * 90_000,
            413,
        ),
        (b"GET /v1/tenants/../../etc/passwd HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 404),
        (b"GET //v1/openapi.json HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 404),
    ],
)
async def test_requests_out_of_bounds_are_refused(mesh: DemoMesh, request_bytes: bytes, status: int) -> None:
    answer = await client(mesh, None).raw(request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert b"application/problem+json" in answer


async def test_the_description_is_the_one_in_the_docs(mesh: DemoMesh) -> None:
    served = await get(mesh, None, "/v1/openapi.json")
    assert served.status == 200
    assert served.body == (Path(__file__).parents[2] / "docs" / "openapi.json").read_bytes()
