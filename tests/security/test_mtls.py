"""Access control with real servers and certificates: the accepted caller, and every kind that must be refused."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from snavio.clock import ManualClock
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import SnavioError, Unauthenticated, Unavailable
from snavio.pki import serial_of
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.server import Call, Methods
from snavio.rpc.status import REASON_KEY
from tests.support.pki import Authority
from tests.support.servers import STREAM, UNARY, Served, calling, serving

PRODUCER = Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme")
# How long a test waits before it gives up; generous, because nothing is measured by it.
WITHIN_S = 20.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


async def refusal(served: Served, files: CertificateFiles, *, service: str = "shield") -> SnavioError:
    async with calling(served, files, service=service) as channel:
        with pytest.raises(SnavioError) as refused:
            await channel.call_raw(UNARY, b"hello", timeout_s=WITHIN_S)
    return refused.value


def serial_on_disk(files: CertificateFiles) -> str:
    return serial_of(x509.load_pem_x509_certificate(files.certificate.read_bytes()))


async def serial_served(served: Served, files: CertificateFiles) -> str:
    """The serial that a new connection is shown."""

    def look() -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.certificate, files.private_key)
        context.set_alpn_protocols(["h2"])
        host, port = served.address.rsplit(":", 1)
        with (
            socket.create_connection((host, int(port)), timeout=WITHIN_S) as plain,
            context.wrap_socket(plain) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
            assert shown is not None
            return serial_of(x509.load_der_x509_certificate(shown))

    return await asyncio.to_thread(look)


# The front door


async def test_producer_with_a_certificate_of_ours_is_served(authority: Authority) -> None:
    async with serving(authority) as served, calling(served, authority.leaf(PRODUCER)) as channel:
        assert await channel.call_raw(UNARY, b"hello", timeout_s=WITHIN_S) == b"hello"


async def test_handler_learns_identity_serial_and_end_from_the_certificate(authority: Authority) -> None:
    peers = []

    async def remember(request: bytes, call: Call) -> bytes:
        peers.append(call.peer)
        return request

    methods = Methods()
    methods.unary_raw(UNARY, remember)
    files = authority.leaf(PRODUCER, ttl_s=900)
    async with serving(authority, methods=methods) as served, calling(served, files) as channel:
        await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
    [peer] = peers
    assert peer.identity == PRODUCER
    assert peer.cert_serial == serial_on_disk(files)
    assert 0 < peer.not_after_unix_ns - time.time_ns() <= 900 * 1_000_000_000


async def test_plaintext_is_refused(authority: Authority) -> None:
    async with serving(authority) as served, grpc.aio.insecure_channel(served.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(UNARY)(b"hello", timeout=WITHIN_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_client_without_a_certificate_is_refused(authority: Authority) -> None:
    trusting = grpc.ssl_channel_credentials(root_certificates=authority.ca.certificate_pem)
    options = (("grpc.ssl_target_name_override", "shield.mesh.snavio.local"),)
    async with (
        serving(authority) as served,
        grpc.aio.secure_channel(served.address, trusting, options=options) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(UNARY)(b"hello", timeout=WITHIN_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_same_identity_from_a_foreign_ca_is_refused(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    async with serving(authority) as served:
        assert isinstance(await refusal(served, foreign.leaf(PRODUCER, trusts=authority)), Unavailable)


async def test_expired_certificate_is_refused(authority: Authority) -> None:
    async with serving(authority) as served:
        assert isinstance(await refusal(served, authority.expired(PRODUCER)), Unavailable)


@pytest.mark.parametrize(
    "spiffe_ids",
    [
        (),
        (PRODUCER.spiffe_id, "spiffe://snavio.local/mesh/shield"),
        ("spiffe://snavio.local/mesh/impostor",),
    ],
    ids=["none", "two", "unknown"],
)
async def test_certificate_without_exactly_one_identity_is_nobody(
    authority: Authority, spiffe_ids: tuple[str, ...]
) -> None:
    async with serving(authority) as served:
        refused = await refusal(served, authority.with_spiffe_ids(*spiffe_ids))
    assert isinstance(refused, Unauthenticated)
    assert refused.reason == "no-identity"


async def test_identity_of_another_trust_domain_is_nobody_even_if_our_ca_signed_it(
    authority: Authority,
) -> None:
    stranger = Identity("other.local", IdentityKind.SERVICE, "billing", "acme")
    async with serving(authority) as served:
        refused = await refusal(served, authority.leaf(stranger))
    assert isinstance(refused, Unauthenticated)
    assert refused.reason == "no-identity"


async def test_nobody_learns_which_methods_exist(authority: Authority) -> None:
    async with serving(authority) as served, calling(served, authority.with_spiffe_ids()) as channel:
        with pytest.raises(Unauthenticated):
            await channel.call_raw("/snavio.v1.Shield/NoSuchMethod", b"", timeout_s=WITHIN_S)


async def test_identity_in_metadata_means_nothing(authority: Authority) -> None:
    files = authority.principal("acme", "ada")
    credentials = grpc.ssl_channel_credentials(
        authority.ca.certificate_pem, files.private_key.read_bytes(), files.certificate.read_bytes()
    )
    options = (("grpc.ssl_target_name_override", "shield.mesh.snavio.local"),)
    claims = (("peer_spiffe_id", PRODUCER.spiffe_id), ("x-forwarded-client-cert", PRODUCER.spiffe_id))
    async with (
        serving(authority) as served,
        grpc.aio.secure_channel(served.address, credentials, options=options) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(UNARY)(b"hello", timeout=WITHIN_S, metadata=claims)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


# The other end


async def test_client_refuses_another_mesh_service_in_place_of_the_one_it_means(
    authority: Authority,
) -> None:
    async with serving(authority, files=authority.mesh("fast")) as served:
        assert isinstance(await refusal(served, authority.leaf(PRODUCER), service="shield"), Unavailable)


async def test_client_refuses_a_tenant_that_plays_server(authority: Authority) -> None:
    async with serving(authority, files=authority.service("evil", "shield")) as served:
        assert isinstance(await refusal(served, authority.leaf(PRODUCER)), Unavailable)


async def test_client_refuses_a_server_of_a_foreign_ca(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    shield = foreign.leaf(Identity("snavio.local", IdentityKind.MESH, "shield"), trusts=authority)
    async with serving(authority, files=shield) as served:
        assert isinstance(await refusal(served, authority.leaf(PRODUCER)), Unavailable)


# What gRPC does not look at again


async def end_of_stream(stream: grpc.aio.StreamStreamCall) -> tuple[grpc.StatusCode, str | None]:
    async with asyncio.timeout(WITHIN_S):
        # A batch that is answered, or a stream that ends well, raises nothing and fails here.
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
    metadata = dict(ended.value.trailing_metadata())
    return ended.value.code(), metadata.get(REASON_KEY)


async def test_certificate_that_expires_mid_stream_is_refused_at_the_next_batch(
    authority: Authority,
) -> None:
    clock = ManualClock(time.time_ns())
    async with (
        serving(authority, clock=clock) as served,
        calling(served, authority.leaf(PRODUCER, ttl_s=600)) as channel,
    ):
        stream = channel.stream(STREAM)
        await stream.write(b"one")
        assert await stream.read() == b"one"
        clock.advance(seconds=601)
        await stream.write(b"two")
        assert await end_of_stream(stream) == (grpc.StatusCode.UNAUTHENTICATED, "certificate-expired")
        with pytest.raises(Unauthenticated) as refused:
            await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        assert refused.value.reason == "certificate-expired"


async def test_certificate_revoked_mid_stream_is_refused_at_the_next_batch(authority: Authority) -> None:
    files = authority.leaf(PRODUCER)
    async with serving(authority) as served, calling(served, files) as channel:
        stream = channel.stream(STREAM)
        await stream.write(b"one")
        assert await stream.read() == b"one"
        served.gate.revoke([serial_on_disk(files)])
        await stream.write(b"two")
        assert await end_of_stream(stream) == (grpc.StatusCode.UNAUTHENTICATED, "certificate-revoked")
        with pytest.raises(Unauthenticated) as refused:
            await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        assert refused.value.reason == "certificate-revoked"
    async with serving(authority) as served, calling(served, authority.leaf(PRODUCER)) as channel:
        assert await channel.call_raw(UNARY, b"new key", timeout_s=WITHIN_S) == b"new key"


# Renewal


async def test_renewed_server_certificate_is_shown_to_new_connections_without_a_restart(
    authority: Authority,
) -> None:
    producer = authority.leaf(PRODUCER)
    async with serving(authority) as served, calling(served, producer) as channel:
        assert await channel.call_raw(UNARY, b"before", timeout_s=WITHIN_S) == b"before"
        old = serial_on_disk(served.files)
        assert await serial_served(served, producer) == old
        authority.mesh("shield")
        assert serial_on_disk(served.files) != old
        assert await serial_served(served, producer) == serial_on_disk(served.files)
        assert await channel.call_raw(UNARY, b"after", timeout_s=WITHIN_S) == b"after"


async def test_removed_ca_holds_for_new_connections_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    successor = Authority(tmp_path / "successor")
    async with serving(authority) as served:
        async with calling(served, authority.leaf(PRODUCER)) as channel:
            await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        successor.leaf(
            Identity("snavio.local", IdentityKind.MESH, "shield"), folder=served.files.certificate.parent
        )
        async with calling(served, successor.leaf(PRODUCER)) as channel:
            assert await channel.call_raw(UNARY, b"new", timeout_s=WITHIN_S) == b"new"
        assert isinstance(await refusal(served, authority.leaf(PRODUCER, trusts=successor)), Unavailable)


async def test_broken_renewal_keeps_the_server_on_its_old_certificate(authority: Authority) -> None:
    producer = authority.leaf(PRODUCER)
    async with serving(authority) as served:
        old = serial_on_disk(served.files)
        served.files.private_key.write_bytes(b"half a key")
        assert await serial_served(served, producer) == old


async def test_channel_shows_its_renewed_certificate_and_lets_old_calls_finish(
    authority: Authority,
) -> None:
    serials = []

    async def remember(request: bytes, call: Call) -> bytes:
        serials.append(call.peer.cert_serial)
        return request

    async def stream(call: Call) -> None:
        while (message := await call.read()) is not None:
            await call.write(message)

    methods = Methods()
    methods.unary_raw(UNARY, remember)
    methods.stream_raw(STREAM, stream)
    clock = ManualClock()
    files = authority.leaf(PRODUCER)
    async with serving(authority, methods=methods) as served, calling(served, files, clock=clock) as channel:
        await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        open_before = channel.stream(STREAM)
        await open_before.write(b"one")
        assert await open_before.read() == b"one"
        generation = channel.generation()
        old = serial_on_disk(files)
        authority.leaf(PRODUCER)
        # Between two checks, within the second, nothing happens.
        await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        assert channel.generation() == generation
        clock.advance(seconds=1)
        await channel.call_raw(UNARY, b"", timeout_s=WITHIN_S)
        assert channel.generation() == generation + 1
        assert serials == [old, old, serial_on_disk(files)]
        await open_before.write(b"two")
        assert await open_before.read() == b"two"
        await open_before.done_writing()
        assert await open_before.read() is grpc.aio.EOF


async def test_calls_on_a_retired_connection_end_with_the_grace(authority: Authority) -> None:
    clock = ManualClock()
    files = authority.leaf(PRODUCER)
    async with (
        serving(authority) as served,
        calling(served, files, clock=clock, retire_grace_s=0.05) as channel,
    ):
        stream = channel.stream(STREAM)
        await stream.write(b"one")
        assert await stream.read() == b"one"
        authority.leaf(PRODUCER)
        clock.advance(seconds=1)
        channel.generation()
        async with asyncio.timeout(WITHIN_S):
            assert await stream.code() is grpc.StatusCode.CANCELLED
