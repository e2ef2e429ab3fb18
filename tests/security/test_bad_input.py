"""Everything that a hostile or broken producer can send: each is refused by name, and other producers are not affected.

One real mesh of real processes. While every test runs, another producer sends through the same Shield; after every test
the same processes must be alive, serving, and that producer's commands delivered.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, NotAllowed, SnavioError, Unauthenticated, Unavailable
from snavio.launch.processes import SERVICES
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk import Producer
from snavio.v1 import mailbox_pb2 as mail
from tests.support.mesh import NAME, TARGET, TOPIC, DemoMesh, demo_mesh
from tests.support.pki import Authority
from tests.support.twin import COMMAND_FIELDS, NS, varint
from tests.support.wire import (
    SUBMIT,
    SUBMIT_BATCH,
    SUBMIT_STREAM,
    WITHIN_S,
    Forge,
    Key,
    RawProducer,
    RawStream,
    audience_of,
    encode,
    found_installation,
    hello_frame,
    mesh_batch,
    primary_key,
    put,
    put_number,
    raw_producer,
    run,
    submission,
    tag_of,
)

FULL = bool(os.environ.get("SNAVIO_FULL"))
BILLING = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, "billing", "acme")
GOOD = Verdict.DELIVERED

pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- the mesh, and somebody who must not notice anything


@dataclass
class Bystander:
    """Another producer's traffic."""

    producer: Producer
    delivered: int = 0
    troubles: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            outcome = await self.producer.send(TARGET, NAME, b"bystander")
            if outcome.delivered:
                self.delivered += 1
            else:
                self.troubles.append(f"{outcome.reason}: {outcome.detail}")
            await asyncio.sleep(0.002)

    async def goes_on(self) -> None:
        """Two more of its commands arrive: at least one was sent after this call."""
        goal = self.delivered + 2
        async with asyncio.timeout(WITHIN_S):
            while self.delivered < goal and not self.troubles:
                await asyncio.sleep(0.002)
        assert self.troubles == []


@dataclass
class Scene:
    """Everything that the tests of this module share."""

    mesh: DemoMesh
    authority: Authority
    billing: RawProducer
    bystander: Bystander
    restarts: bool = False

    def files(self, name: str) -> CertificateFiles:
        return CertificateFiles.in_folder(self.mesh.certificates(name))

    def channel(self, files: CertificateFiles, service: str = "shield") -> MeshChannel:
        return MeshChannel(self.mesh.addresses[service], files=files, service=service)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("bad-input")
    authority = await found_installation(folder)
    async with demo_mesh(folder) as mesh:
        async with mesh.operator() as operator:
            for service in ("courier", "rotated"):
                await mesh.register_service(operator, service)
                await operator.grant(f"acme/{service}", TARGET, NAME)
            await operator.create_tenant("evil")
            await operator.register_service("evil", "worker")
            await operator.certify(
                Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, "worker", "evil"),
                mesh.certificates("evil-worker"),
            )
            await operator.certify(
                Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "alice", "acme"),
                mesh.certificates("acme-alice"),
            )
            # One version that only this source has.
            await operator.rotate_key("acme/rotated")
        addresses = mesh.addresses
        files = CertificateFiles.in_folder(mesh.certificates("acme-billing"))
        async with (
            raw_producer(shield=addresses["shield"], signer=addresses["signer"], files=files) as billing,
            mesh.producer("courier") as uploader,
        ):
            bystander = Bystander(uploader)
            traffic = asyncio.create_task(bystander.run())
            # Until every grant has reached Fast, all go by way of Slow; that is allowed, only slower.
            try:
                yield Scene(mesh, authority, billing, bystander)
            finally:
                traffic.cancel()
                await asyncio.wait({traffic})
        assert bystander.delivered > 0
        assert bystander.troubles == []


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nobody_else_notices(scene: Scene) -> AsyncIterator[None]:
    pids = {name: scene.mesh.processes.pid(name) for name in SERVICES}
    await scene.bystander.goes_on()
    scene.restarts = False
    yield
    await scene.bystander.goes_on()
    if not scene.restarts:
        assert {name: scene.mesh.processes.pid(name) for name in SERVICES} == pids
    for name in SERVICES:
        assert scene.mesh.processes.ended(name) is None, f"{name} is gone"
    assert await _health(scene) == health_pb2.HealthCheckResponse.SERVING


async def _health(scene: Scene) -> Any:
    request = health_pb2.HealthCheckRequest()
    answer = await scene.billing.channel.call(
        "/grpc.health.v1.Health/Check", request, health_pb2.HealthCheckResponse, timeout_s=WITHIN_S
    )
    return answer.status


# --- commands that are wrong in one way


@dataclass(frozen=True)
class Wrong:
    """One invalid input, as a sentence; `make` gets the forge of a producer in good standing."""

    sentence: str
    make: Callable[[Forge], bytes]
    verdict: Verdict


_TEXT = {
    "id": Verdict.INVALID_ID,
    "timestamp": Verdict.INVALID_TIMESTAMP,
    "type": Verdict.INVALID_TYPE,
    "key_version": Verdict.INVALID_KEY_VERSION,
    "audience": Verdict.INVALID_AUDIENCE,
    "target": Verdict.INVALID_TARGET,
    "name": Verdict.INVALID_NAME,
    "content_type": Verdict.INVALID_CONTENT_TYPE,
    "traceparent": Verdict.INVALID_TRACEPARENT,
}
_TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _spoiled(name: str, spoil: Callable[[bytes], bytes]) -> Callable[[Forge], bytes]:
    def make(forge: Forge) -> bytes:
        fields = forge.fields(traceparent=_TRACE)
        return forge.seal({**fields, name: spoil(fields[name])})

    return make


def _twice(number: int) -> Callable[[Forge], bytes]:
    def make(forge: Forge) -> bytes:
        fields = forge.fields(traceparent=_TRACE)
        sealed = {**fields, "hmac": tag_of(forge.key.secret, fields)}
        return encode(sealed) + put(number, sealed[COMMAND_FIELDS[number]])

    return make


def _shifted(forge: Forge) -> bytes:
    """The last byte of the name becomes the first of the content type."""
    fields = forge.fields(content_type="text/plain")
    tag = tag_of(forge.key.secret, fields)
    moved = fields["name"][-1:]
    return encode(
        {
            **fields,
            "name": fields["name"][:-1],
            "content_type": moved + fields["content_type"],
            "hmac": tag,
        }
    )


def _stamped(text: str) -> Callable[[Forge], bytes]:
    return lambda forge: forge.command(timestamp=text)


def _noise(seed: int, length: int) -> Callable[[Forge], bytes]:
    return lambda _forge: random.Random(seed).randbytes(length)


M = Verdict.MALFORMED
WRONG: list[Wrong] = [
    *(
        Wrong(f"{length} random bytes, seed {seed}", _noise(seed, length), M)
        for seed in range(20 if FULL else 3)
        for length in (7, 300, 5000)
    ),
    Wrong("an empty command", lambda _forge: b"", Verdict.INVALID_ID),
    Wrong("truncated by a byte", lambda forge: forge.command()[:-1], M),
    Wrong("truncated in the middle", lambda forge: forge.command()[:90], M),
    Wrong("a byte too long", lambda forge: forge.command() + b"\x00", M),
    Wrong("an unknown field", lambda forge: forge.command() + put(13, b"x"), M),
    Wrong("an unknown field with a large number", lambda forge: forge.command() + put(536870911, b"x"), M),
    Wrong("an unknown number", lambda forge: forge.command() + put_number(14, 7), M),
    Wrong("field number zero", lambda forge: forge.command() + b"\x02\x00", M),
    Wrong("a group", lambda forge: forge.command() + b"\x6b\x6c", M),
    Wrong("a fixed32 field", lambda forge: forge.command() + b"\x6d\x00\x00\x00\x00", M),
    Wrong("a number where text belongs", lambda forge: put_number(1, 7) + forge.command(id=None), M),
    Wrong("a length spelled too long", lambda forge: forge.command(id=None) + b"\x0a\x80\x00", M),
    Wrong("a length beyond the end", lambda forge: forge.command(id=None) + b"\x0a" + varint(2**63), M),
    *(
        Wrong(f"{COMMAND_FIELDS[number]} twice", _twice(number), M)
        for number in COMMAND_FIELDS
        if COMMAND_FIELDS[number] != "source"
    ),
    *(Wrong(f"{name} not in UTF-8", _spoiled(name, lambda text: text + b"\xff"), M) for name in _TEXT),
    *(
        Wrong(f"{name} with {label}", _spoiled(name, lambda text, tail=tail: text + tail), verdict)  # type: ignore[misc]
        for name, verdict in _TEXT.items()
        for label, tail in (
            ("a newline", b"\n"),
            ("a zero byte", b"\x00"),
            ("a DEL", b"\x7f"),
            ("a C1 control", "\x85".encode()),
        )
    ),
    *(
        Wrong(f"{name} with a newline in front", _spoiled(name, lambda text: b"\n" + text), verdict)
        for name, verdict in _TEXT.items()
    ),
    *(
        Wrong(f"no {name}", lambda forge, name=name: forge.command(**{name: None}), verdict)  # type: ignore[misc]
        for name, verdict in _TEXT.items()
        if name not in ("content_type", "traceparent")
    ),
    Wrong("a source that is present and empty", lambda f: f.command(source=b""), Verdict.SOURCE_PRESENT),
    Wrong("its own source", lambda forge: forge.command(source="acme/billing"), Verdict.SOURCE_PRESENT),
    Wrong("another's source", lambda forge: forge.command(source="acme/courier"), Verdict.SOURCE_PRESENT),
    Wrong("a nil id", lambda f: f.command(id="00000000-0000-0000-0000-000000000000"), Verdict.INVALID_ID),
    Wrong("an id in upper case", _spoiled("id", bytes.upper), Verdict.INVALID_ID),
    Wrong("an id without hyphens", _spoiled("id", lambda i: i.replace(b"-", b"")), Verdict.INVALID_ID),
    Wrong("an id in braces", _spoiled("id", lambda i: b"{" + i + b"}"), Verdict.INVALID_ID),
    *(
        Wrong(f"the timestamp {text!r}", _stamped(text), Verdict.INVALID_TIMESTAMP)
        for text in (
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05.123456789012Z",
            "2026-01-02T03:04:05+00:00",
            "2026-01-02T03:04:05z",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:60Z",
            "2026-01-02T24:00:00Z",
            "2026-02-30T03:04:05Z",
            "2026-01-02T03:04:05.Z",
            "+2026-01-02T03:04:05Z",
            "٢٠٢٦-01-02T03:04:05Z",
            "10000-01-01T00:00:00Z",
        )
    ),
    Wrong("the year 9999", _stamped("9999-12-31T23:59:59.999999999Z"), Verdict.TIMESTAMP_OUTSIDE_WINDOW),
    Wrong("61 s ahead", lambda forge: forge.command(ahead_s=61.0), Verdict.TIMESTAMP_OUTSIDE_WINDOW),
    Wrong("61 s behind", lambda forge: forge.command(ahead_s=-61.0), Verdict.TIMESTAMP_OUTSIDE_WINDOW),
    Wrong("the year 1", _stamped("0001-01-01T00:00:00Z"), Verdict.KEY_EXPIRED),
    *(
        Wrong(f"an HMAC of {length} bytes", lambda f, n=length: f.tagged(bytes(n)), Verdict.INVALID_HMAC)  # type: ignore[misc]
        for length in (0, 16, 31, 33, 64)
    ),
    Wrong("an HMAC of zeros", lambda forge: forge.tagged(bytes(32)), Verdict.HMAC_MISMATCH),
    Wrong(
        "a secret of its own making", lambda f: f.seal(f.fields(), secret=b"k" * 32), Verdict.HMAC_MISMATCH
    ),
    *(
        Wrong(
            f"{name} changed after signing",
            lambda f, name=name, value=value: f.altered(**{name: value}),  # type: ignore[misc]
            Verdict.HMAC_MISMATCH,
        )
        for name, value in (
            ("id", "0190d6f2-4d3c-7cc0-8000-000000000001"),
            ("target", "other-bot"),
            ("name", "delete-user"),
            ("content_type", "text/html"),
            ("payload", b"evil"),
        )
    ),
    Wrong("a byte moved from one field to the next", _shifted, Verdict.HMAC_MISMATCH),
    Wrong("another type", lambda f: f.command(type="snavio.command-replayed"), Verdict.INVALID_TYPE),
    Wrong("an unknown key version", lambda f: f.command(key_version="hmac-v9"), Verdict.UNKNOWN_KEY_VERSION),
    Wrong("a wrong audience", lambda f: f.command(audience="shield-0:00ff"), Verdict.WRONG_AUDIENCE),
    Wrong("a payload of 256 KiB + 1", lambda f: f.command(payload=bytes((256 << 10) + 1)), Verdict.OVERSIZED),
    Wrong("a target of 129 characters", lambda f: f.command(target="a" * 129), Verdict.INVALID_TARGET),
    Wrong("a target in upper case", lambda f: f.command(target="Discord-Bot"), Verdict.INVALID_TARGET),
    Wrong("a target that climbs", lambda f: f.command(target="../bot"), Verdict.INVALID_TARGET),
    Wrong("a trace of zeros", lambda f: f.command(traceparent=b"00-" + b"0" * 32 + _TRACE[35:]), Verdict(28)),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.sentence.encode("unicode_escape").decode())
async def test_a_command_that_is_wrong_is_refused_and_its_neighbours_are_delivered(
    scene: Scene, wrong: Wrong
) -> None:
    billing = scene.billing
    good, bad = billing.forge.command, wrong.make
    stream = await billing.stream()
    answer = await stream.ask(submission([good(), bad(billing.forge), good()]))
    assert answer.codes == [GOOD, wrong.verdict, GOOD]
    answer = await billing.submit_batch(submission([bad(billing.forge), good(), bad(billing.forge)]))
    assert answer.codes == [wrong.verdict, GOOD, wrong.verdict]
    assert answer.final
    assert (await billing.submit(bad(billing.forge))).codes == [wrong.verdict]
    # The stream on which it came is not held against its owner.
    assert (await stream.ask(submission([good()], batch_seq=2), 2)).codes == [GOOD]
    stream.cancel()


async def test_a_thousand_commands_that_are_all_wrong_are_refused_one_by_one(scene: Scene) -> None:
    forge = scene.billing.forge
    chosen = [wrong for wrong in WRONG if wrong.verdict is not Verdict.OVERSIZED]
    batch = [chosen[number % len(chosen)] for number in range(1000)]
    answer = await (await scene.billing.stream()).ask(submission([wrong.make(forge) for wrong in batch]))
    assert answer.codes == [wrong.verdict for wrong in batch]


async def test_the_largest_payload_and_the_largest_batch_are_delivered(scene: Scene) -> None:
    forge = scene.billing.forge
    answer = await scene.billing.submit(forge.command(payload=bytes(256 << 10)))
    assert answer.codes == [GOOD]
    answer = await scene.billing.submit_batch(submission([forge.command() for _ in range(1000)]))
    assert answer.codes == [GOOD] * 1000


async def test_the_refusal_of_a_wrong_audience_names_the_right_one(scene: Scene) -> None:
    forge = scene.billing.forge
    answer = await scene.billing.submit(forge.command(audience="shield-0:0"))
    assert [refusal.detail for refusal in answer.refusals] == [forge.audience]


async def test_a_key_version_of_another_source_opens_nothing(scene: Scene) -> None:
    forge, address = scene.billing.forge, scene.mesh.addresses["signer"]
    theirs = await primary_key(address, scene.files("acme-courier"))
    same_name = Forge(Key(forge.key.version, theirs.secret), forge.audience)
    other_name = Forge(Key("hmac-v2", theirs.secret), forge.audience)
    answer = await scene.billing.submit_batch(
        submission([same_name.command(), forge.command(), other_name.command()])
    )
    assert answer.codes == [Verdict.HMAC_MISMATCH, GOOD, Verdict.UNKNOWN_KEY_VERSION]


# --- frames that are wrong as a whole


def _frames(forge: Forge) -> dict[str, tuple[bytes, Verdict]]:
    whole = submission([forge.command(), forge.command()])
    header = put(2, put_number(1, 1))
    large = forge.command(payload=bytes(200 << 10))
    return {
        "random bytes": (random.Random(1).randbytes(1000), M),
        "zeros": (bytes(64), M),
        "cut by a byte": (whole[:-1], M),
        "cut in its header": (whole[:2], M),
        "an unknown field": (whole + put(9, b"x"), M),
        "two headers": (header + whole, M),
        "a Hello in front": (hello_frame() + whole, M),
        "a number where commands belong": (header + put_number(3, 7), M),
        "an unknown field in its header": (put(2, put_number(1, 1) + put_number(3, 1)), M),
        "a budget of 2^32": (put(2, put_number(1, 1) + put_number(2, 2**32)), M),
        "1001 commands": (submission([b"x"] * 1001), Verdict.OVERSIZED),
        "a million empty commands": (header + put(3, b"") * 500_000, Verdict.OVERSIZED),
        "a byte over 1 MiB": (
            header + put(3, bytes((1 << 20) + 1 - len(header) - 4)),
            Verdict.OVERSIZED,
        ),
        "1 MiB and 50 KiB": (
            submission([large] * 5 + [forge.command(payload=bytes(70 << 10))]),
            Verdict.OVERSIZED,
        ),
    }


@pytest.mark.parametrize("which", list(_frames(Forge(Key("hmac-v1", b""), "a"))))
async def test_a_frame_that_is_wrong_as_a_whole_is_refused_and_the_stream_goes_on(
    scene: Scene, which: str
) -> None:
    forge = scene.billing.forge
    frame, verdict = _frames(forge)[which]
    stream = await scene.billing.stream()
    await stream.send(frame)
    await stream.send(submission([forge.command()], batch_seq=77))
    assert (await stream.answer(77)).codes == [GOOD]
    answers = [answer for answer in stream._answers.values() if answer.final]
    whole = await scene.billing.submit_batch(frame)
    assert [answer.frame_refusal for answer in answers] == [verdict]
    assert whole.frame_refusal is verdict
    assert whole.final
    stream.cancel()


async def test_a_frame_far_beyond_the_limit_ends_its_stream_and_no_other(scene: Scene) -> None:
    forge, other = scene.billing.forge, await scene.billing.stream()
    async with without_limit(scene) as channel:
        stream = channel.stream_stream(SUBMIT_STREAM)()
        await stream.write(hello_frame())
        await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.write(submission([forge.command(payload=bytes(200 << 10))] * 15))
            async with asyncio.timeout(WITHIN_S):
                while await stream.read() is not grpc.aio.EOF:
                    pass
            raise grpc.aio.AioRpcError(await stream.code(), grpc.aio.Metadata(), grpc.aio.Metadata())
        assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert (await other.ask(submission([forge.command()], batch_seq=7), 7)).codes == [GOOD]
    other.cancel()


def without_limit(scene: Scene) -> grpc.aio.Channel:
    """A channel of a client that sends messages of any size."""
    options = (
        ("grpc.ssl_target_name_override", "shield.mesh.snavio.local"),
        ("grpc.max_send_message_length", -1),
    )
    files = scene.files("acme-billing")
    credentials = grpc.ssl_channel_credentials(
        files.ca.read_bytes(), files.private_key.read_bytes(), files.certificate.read_bytes()
    )
    return grpc.aio.secure_channel(scene.mesh.addresses["shield"], credentials, options)


async def test_a_run_that_names_another_source_is_only_a_malformed_command(scene: Scene) -> None:
    frame = mesh_batch([run("acme/courier", [scene.billing.forge.command()])])
    assert (await scene.billing.submit_batch(frame)).codes == [M]


async def test_an_empty_batch_is_answered(scene: Scene) -> None:
    stream = await scene.billing.stream()
    assert (await stream.ask(submission([], batch_seq=3), 3)).codes == []
    assert (await scene.billing.submit_batch(submission([]))).final


@pytest.mark.parametrize("method", [SUBMIT, SUBMIT_BATCH])
async def test_a_message_beyond_the_transport_limit_is_refused_as_oversized(
    scene: Scene, method: str
) -> None:
    async with without_limit(scene) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(method)(bytes(5 << 20), timeout=WITHIN_S)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (random.Random(2).randbytes(100), "no-hello"),
        (b"", "no-hello"),
        (submission([b"x"]), "no-hello"),
        (hello_frame(wire_version=0), "wire-version"),
        (hello_frame(wire_version=99), "wire-version"),
    ],
    ids=["random bytes", "nothing", "a batch", "version 0", "version 99"],
)
async def test_a_stream_that_does_not_open_with_our_hello_is_refused(
    scene: Scene, opening: bytes, reason: str
) -> None:
    stream = RawStream(scene.billing.channel)
    with pytest.raises(BadRequest) as refused:
        await stream.greet(opening)
    assert refused.value.reason == reason


@pytest.mark.parametrize("noise", [random.Random(3).randbytes(200), b"\xff" * 10, b"\x0a\xff\xff\xff\x7f"])
async def test_noise_as_an_unary_request_is_malformed(scene: Scene, noise: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        await scene.billing.submit_raw(SUBMIT, noise)
    assert refused.value.reason == "malformed"
    assert (await scene.billing.submit_raw(SUBMIT_BATCH, noise)).frame_refusal is M


# --- the same bytes again


async def test_a_replay_is_refused_wherever_it_is_played(scene: Scene) -> None:
    billing = scene.billing
    command = billing.forge.command(payload=b"once")
    first, other = await billing.stream(), await billing.stream()
    again = Verdict.REPLAYED
    answer = await first.ask(submission([command, billing.forge.command(), command, command]))
    assert answer.codes == [GOOD, GOOD, again, again]
    assert (await first.ask(submission([command], batch_seq=2), 2)).codes == [again]
    assert (await other.ask(submission([command]))).codes == [again]
    assert (await billing.submit(command)).codes == [again]
    assert (await billing.submit_batch(submission([command]))).codes == [again]


async def test_of_many_copies_played_at_once_exactly_one_is_delivered(scene: Scene) -> None:
    billing = scene.billing
    command = billing.forge.command(payload=b"once, at once")
    streams = [await billing.stream() for _ in range(8)]
    answers = await asyncio.gather(
        *(stream.ask(submission([command, command])) for stream in streams),
        *(billing.submit(command) for _ in range(8)),
    )
    codes = [code for answer in answers for code in answer.codes]
    assert sorted(codes) == [GOOD] + [Verdict.REPLAYED] * 23


async def test_the_same_command_in_other_bytes_is_still_a_replay(scene: Scene) -> None:
    billing = scene.billing
    fields = billing.forge.fields()
    command = billing.forge.seal(fields)
    tag = tag_of(billing.forge.key.secret, fields)
    in_another_order = put(6, tag) + encode(fields)
    with_a_trace = encode({**fields, "hmac": tag, "traceparent": _TRACE})
    assert (await billing.submit(command)).codes == [GOOD]
    answer = await billing.submit_batch(submission([in_another_order, with_a_trace]))
    assert answer.codes == [Verdict.REPLAYED] * 2


async def test_another_source_cannot_play_what_it_has_captured(scene: Scene) -> None:
    command = scene.billing.forge.command()
    thief = RawProducer(scene.channel(scene.files("acme-courier")), scene.billing.forge)
    try:
        assert (await thief.submit(command)).codes == [Verdict.HMAC_MISMATCH]
    finally:
        await thief.close()
    assert (await scene.billing.submit(command)).codes == [GOOD]


async def test_a_flood_of_invalid_commands_leaves_no_trace_in_any_table(scene: Scene) -> None:
    billing, forge = scene.billing, scene.billing.forge
    kept = [forge.fields(payload=b"mine %d" % number) for number in range(50)]
    tags = [tag_of(forge.key.secret, fields) for fields in kept]
    stream = await billing.stream()
    spoilings: list[tuple[dict[str, bytes], Verdict]] = [
        ({"payload": b"not mine"}, Verdict.HMAC_MISMATCH),
        ({"audience": b"elsewhere"}, Verdict.WRONG_AUDIENCE),
        ({"key_version": b"hmac-v9"}, Verdict.UNKNOWN_KEY_VERSION),
        ({"timestamp": b"2020-01-01T00:00:00Z"}, Verdict.KEY_EXPIRED),
        ({"timestamp": b"9999-01-01T00:00:00Z"}, Verdict.TIMESTAMP_OUTSIDE_WINDOW),
        ({"source": b""}, Verdict.SOURCE_PRESENT),
    ]
    for seq, (spoiling, verdict) in enumerate(spoilings * (10 if FULL else 1), start=1):
        # Every id and every tag of a command that is still to come, many times over.
        flood = [
            encode({**fields, **spoiling, "hmac": tag})
            for fields, tag in zip(kept, tags, strict=True)
            for _ in range(20)
        ]
        answer = await stream.ask(submission(flood, batch_seq=seq), seq)
        assert set(answer.codes) == {verdict}
    answer = await billing.submit_batch(submission([forge.seal(fields) for fields in kept]))
    assert answer.codes == [GOOD] * 50


@pytest.mark.parametrize("ahead_s", [0.0, 50.0], ids=["stamped now", "stamped 50 s ahead"])
async def test_a_capture_cannot_be_played_to_a_shield_that_was_restarted(
    scene: Scene, ahead_s: float
) -> None:
    scene.restarts = True
    billing, processes = scene.billing, scene.mesh.processes
    fields = billing.forge.fields(ahead_s=ahead_s)
    played, unplayed = billing.forge.seal(fields), billing.forge.command(ahead_s=ahead_s)
    assert (await billing.submit(played)).codes == [GOOD]
    before = billing.forge.audience

    processes.kill("shield")
    processes.spawn("shield")
    await asyncio.to_thread(processes.wait_ready, "shield")
    billing.forge.audience = await audience_of(scene.mesh.addresses["shield"], scene.files("acme-billing"))
    assert billing.forge.audience != before
    await _reconnected(billing)
    answer = await billing.submit_batch(submission([played, unplayed, billing.forge.command()]))
    assert answer.codes == [Verdict.WRONG_AUDIENCE, Verdict.WRONG_AUDIENCE, GOOD]
    stream = await billing.stream()
    assert (await stream.ask(submission([played]))).codes == [Verdict.WRONG_AUDIENCE]
    # Its sender signs again under the same id and gets through.
    fresh = {**fields, "audience": billing.forge.audience.encode()}
    assert (await billing.submit(billing.forge.seal(fresh))).codes == [GOOD]


async def _reconnected(billing: RawProducer) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await billing.submit(billing.forge.command())
            except Unavailable:
                await asyncio.sleep(0.02)
            else:
                return


# --- who knocks


async def test_plaintext_is_not_spoken_here(scene: Scene) -> None:
    async with grpc.aio.insecure_channel(scene.mesh.addresses["shield"]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(SUBMIT)(b"", timeout=WITHIN_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_without_a_certificate_stays_outside(scene: Scene) -> None:
    trusting = grpc.ssl_channel_credentials(root_certificates=scene.authority.ca.certificate_pem)
    options = (("grpc.ssl_target_name_override", "shield.mesh.snavio.local"),)
    async with grpc.aio.secure_channel(scene.mesh.addresses["shield"], trusting, options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(SUBMIT)(b"", timeout=WITHIN_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_right_name_from_a_foreign_ca_stays_outside(scene: Scene, tmp_path: Path) -> None:
    foreign = Authority(tmp_path)
    refused = await _refusal(scene, foreign.leaf(BILLING, trusts=scene.authority), SUBMIT)
    assert isinstance(refused, Unavailable)


async def test_an_expired_certificate_stays_outside(scene: Scene) -> None:
    refused = await _refusal(scene, scene.authority.expired(BILLING), SUBMIT)
    assert isinstance(refused, Unavailable)


@pytest.mark.parametrize("method", [SUBMIT, SUBMIT_BATCH, SUBMIT_STREAM])
async def test_a_certificate_with_two_identities_is_nobody(scene: Scene, method: str) -> None:
    files = scene.authority.with_spiffe_ids(BILLING.spiffe_id, "spiffe://snavio.local/mesh/shield")
    refused = await _refusal(scene, files, method)
    assert isinstance(refused, Unauthenticated)
    assert refused.reason == "no-identity"


@pytest.mark.parametrize("method", [SUBMIT, SUBMIT_BATCH, SUBMIT_STREAM, "/snavio.v1.Shield/Greet"])
@pytest.mark.parametrize("caller", ["fast", "shield", "mailbox", "operator-admin", "acme-alice"])
async def test_only_services_of_tenants_may_submit(scene: Scene, caller: str, method: str) -> None:
    refused = await _refusal(scene, scene.files(caller), method)
    assert isinstance(refused, NotAllowed)
    assert refused.reason == "not-allowed"


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("fast", "Fast/Dispatch"),
        ("slow", "Slow/Arbitrate"),
        ("mailbox", "Mailbox/SendStream"),
        ("signer", "Signer/KeysetChanges"),
        ("signer", "Signer/Denylist"),
        ("signer", "Signer/RotateKeyset"),
        ("signer", "Signer/RevokeCertificate"),
        ("registry", "Registry/Changes"),
        ("registry", "Registry/Resolve"),
        ("registry", "Registry/GrantAccess"),
    ],
)
@pytest.mark.parametrize("caller", ["acme-billing", "evil-worker"])
async def test_a_producer_cannot_go_around_shield(
    scene: Scene, caller: str, service: str, method: str
) -> None:
    refused = await _refusal(scene, scene.files(caller), f"/snavio.v1.{method}", service=service)
    assert isinstance(refused, NotAllowed)
    assert refused.reason == "not-allowed"


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Receive", mail.ReceiveRequest(topic=TOPIC, visibility_ms=1000)),
        ("Ack", mail.AckRequest(topic=TOPIC)),
        ("Nack", mail.NackRequest(topic=TOPIC)),
        ("Extend", mail.ExtendRequest(topic=TOPIC, visibility_ms=1000)),
        ("Stats", mail.StatsRequest(topic=TOPIC)),
    ],
)
async def test_a_consumer_of_another_tenant_gets_nothing_of_this_topic(
    scene: Scene, method: str, request_: Any
) -> None:
    channel = scene.channel(scene.files("evil-worker"), "mailbox")
    try:
        with pytest.raises(NotAllowed) as refused:
            await channel.call_raw(
                f"/snavio.v1.Mailbox/{method}", request_.SerializeToString(), timeout_s=WITHIN_S
            )
    finally:
        await channel.close()
    assert refused.value.reason == "not-owner"


@pytest.mark.parametrize(
    "topic", ["", "acme", "acme/", "evil/../acme/discord-bot", "ACME/discord-bot", "evil"]
)
async def test_no_spelling_of_a_topic_reaches_another_tenant(scene: Scene, topic: str) -> None:
    channel = scene.channel(scene.files("evil-worker"), "mailbox")
    request = mail.ReceiveRequest(topic=topic, visibility_ms=1000)
    try:
        answer = await channel.call_raw(
            "/snavio.v1.Mailbox/Receive", request.SerializeToString(), timeout_s=WITHIN_S
        )
    except SnavioError:
        pass
    else:
        assert not mail.ReceiveResponse.FromString(answer).batch
    finally:
        await channel.close()


async def _refusal(
    scene: Scene, files: CertificateFiles, method: str, *, service: str = "shield"
) -> SnavioError:
    channel = scene.channel(files, service)
    streamed = method.endswith(("Stream", "Dispatch", "Arbitrate"))
    with pytest.raises(SnavioError) as refused:
        if streamed:
            await RawStream(channel, method).listen()
        else:
            await channel.call_raw(method, put(1, b""), timeout_s=WITHIN_S)
    await channel.close()
    return refused.value


# --- the sum of it


async def test_the_consumer_got_valid_commands_only_and_each_once(scene: Scene) -> None:
    """The last test of this module: nothing invalid reached the consumer, whatever the others sent."""
    ids: list[str] = []
    sources: set[str] = set()
    quiet = f"the end {NS}".encode()
    assert (await scene.billing.submit(scene.billing.forge.command(payload=quiet))).codes == [GOOD]
    async with scene.mesh.consumer() as consumer, asyncio.timeout(60):
        async for command in consumer:
            sources.add(command.source)
            assert (command.target, command.name) == (TARGET, NAME)
            assert command.attempt == 1
            assert command.payload != b"evil"
            if command.source == "acme/billing":
                ids.append(command.command_id)
            await command.ack()
            if command.payload == quiet:
                break
        await consumer.flush()
    assert sources == {"acme/billing", "acme/courier"}
    # Two ids are there twice: each capture's, whose sender signed it anew after the restart.
    assert len(ids) - len(set(ids)) == 2
