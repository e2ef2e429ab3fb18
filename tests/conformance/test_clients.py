"""One list of cases that the Python SDK and the clients in Go and TypeScript are held to, against a real mesh."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from snavio.domain.verdict import Verdict
from snavio.native import format_timestamp, frame_leased_batch, parse_timestamp
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Leaf
from snavio.sdk.delivery import Integrity, Settlement
from snavio.v1 import registry_pb2 as registry
from snavio.v1.command_pb2 import Command
from snavio.v1.shield_pb2 import Submission
from tests.conformance.clients import (
    GO,
    LANGUAGES,
    TYPESCRIPT,
    ClientProcess,
    RefusedByClient,
    build,
    client_process,
    install_typescript,
    missing,
    run,
)
from tests.conformance.tampering_mailbox import tampering_mailbox
from tests.support.hostile_gateway import hostile_gateway, refuse, serve
from tests.support.mesh import NAME, TENANT, DemoMesh
from tests.support.neighbours import eventually
from tests.support.scripted import stage
from tools.generate_proto import run_protoc

SETTINGS = {"mailbox": {"backoff_base_ms": 1}}
VECTORS = Path(__file__).parents[1] / "vectors"
LEASE_MS = 30_000
STRICT = "refund"
PRINCIPAL = "ci"
DONE, LATE, GONE = Settlement.DONE, Settlement.LATE, Settlement.GONE


async def furnish(mesh: DemoMesh) -> None:
    """For each client a service that one principal may act as, and a target of its own that it may send to."""
    operator = MeshChannel(
        mesh.addresses["registry"],
        files=CertificateFiles.in_folder(mesh.certificates("operator-admin")),
        service="registry",
    )
    async with mesh.operator() as directory:
        for language in LANGUAGES:
            named = registry.Principal(tenant=TENANT, principal=f"{PRINCIPAL}-{language}")
            await operator.call(
                "/snavio.v1.Registry/Apply",
                registry.ApplyRequest(write=[registry.Write(entry=registry.Entry(principal=named))]),
                registry.ApplyResponse,
                timeout_s=10,
            )
            service = registry.Service(tenant=TENANT, service=language, principal=[f"{PRINCIPAL}-{language}"])
            await operator.call(
                "/snavio.v1.Registry/RegisterService",
                registry.RegisterServiceRequest(service=service),
                registry.WriteResponse,
                timeout_s=10,
            )
            await directory.claim_target(f"{language}-bot", TENANT)
            await directory.put_route(f"{language}-bot", NAME)
            await directory.grant(f"{TENANT}/{language}", f"{language}-bot", NAME)
            await directory.put_route(f"{language}-bot", "forbidden")
            strict = registry.Route(
                target=f"{language}-bot", name=STRICT, dedupe_mode=registry.DEDUPE_MODE_STRICT
            )
            await directory._write("PutRoute", registry.PutRouteRequest(route=strict))
            await directory.grant(f"{TENANT}/{language}", f"{language}-bot", STRICT)
    await operator.close()


@dataclass
class Bench:
    """A client, its names in the mesh, and the folders of its machine."""

    mesh: DemoMesh
    client: ClientProcess
    command: list[str]
    folder: Path

    @property
    def source(self) -> str:
        return f"{TENANT}/{self.client.language}"

    @property
    def target(self) -> str:
        return f"{self.client.language}-bot"

    @property
    def topic(self) -> str:
        return f"{TENANT}/{self.target}"

    @property
    def principal(self) -> Path:
        return self.folder / "principal"

    async def token(self) -> str:
        channel = MeshChannel(
            self.mesh.addresses["registry"],
            files=CertificateFiles.in_folder(self.mesh.certificates("operator-admin")),
            service="registry",
        )
        try:
            told = await channel.call(
                "/snavio.v1.Registry/CreateEnrolment",
                registry.EnrolmentTokenRequest(
                    tenant=TENANT, principal=f"{PRINCIPAL}-{self.client.language}"
                ),
                registry.EnrolmentToken,
                timeout_s=10,
            )
        finally:
            await channel.close()
        text: str = told.token
        return text

    async def enrol(self, token: str, folder: Path, *, fingerprint: str | None = None) -> dict[str, Any]:
        return await self.client.ask(
            "enrol",
            address=self.mesh.processes.enrolment,
            fingerprint=token.split(".")[1] if fingerprint is None else fingerprint,
            token=token,
            name=f"{PRINCIPAL}-{self.client.language}",
            folder=str(folder),
        )

    async def open(self, client: ClientProcess | None = None, **more: Any) -> dict[str, Any]:
        """Act as the service through the principal."""
        opening = {
            "shield": self.mesh.addresses["shield"],
            "signer": self.mesh.addresses["signer"],
            "mailbox": self.mesh.addresses["mailbox"],
            "folder": str(self.folder / "service"),
            "principal": str(self.principal),
            "source": self.source,
        }
        return await (client or self.client).ask("open", **{**opening, **more})

    async def send(self, payload: bytes) -> dict[str, Any]:
        return await self.client.ask("send", target=self.target, name=NAME, payload=payload.hex())

    async def receive(self, *, visibility_ms: int = LEASE_MS, wait_ms: int = 1000) -> list[dict[str, Any]]:
        told = await self.client.ask(
            "receive", topic=self.topic, most=10, visibility_ms=visibility_ms, wait_ms=wait_ms
        )
        messages: list[dict[str, Any]] = told["messages"]
        return messages

    async def one(self, *, visibility_ms: int = LEASE_MS) -> dict[str, Any]:
        """The next message, once there is one."""
        async with asyncio.timeout(60):
            while not (messages := await self.receive(visibility_ms=visibility_ms)):
                pass
        (message,) = messages
        return message

    async def settle(self, how: str, *messages: dict[str, Any], **more: Any) -> list[int]:
        told = await self.client.ask(how, handles=[each["handle"] for each in messages], **more)
        codes: list[int] = told["codes"]
        return codes


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LANGUAGES)
async def bench(
    request: pytest.FixtureRequest, mesh: DemoMesh, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    """One client for all cases, enrolled and acting as its service."""
    language: str = request.param
    if absent := missing(language):
        pytest.skip(f"the {language} client needs {' and '.join(absent)}")
    folder = tmp_path_factory.mktemp(language)
    command = await asyncio.to_thread(build, language, folder)
    async with client_process(language, command) as client:
        each = Bench(mesh, client, command, folder)
        await each.enrol(await each.token(), each.principal)
        await each.open()
        yield each


# -- without the mesh ------------------------------------------------------------------------------------


async def signs_the_shared_vectors(bench: Bench) -> None:
    worked = json.loads((VECTORS / "commands.json").read_text())["worked"]
    for vector in worked:
        stamp = parse_timestamp(vector["fields"]["timestamp"])
        if bench.client.language == "python" and format_timestamp(stamp) != vector["fields"]["timestamp"]:
            continue  # The SDK stamps with nine digits; tests/unit/test_command_vectors.py has the others.
        told = await bench.client.ask(
            "sign",
            secret=vector["secret"],
            fields=vector["fields"],
            payload=vector["payload"],
            timestamp_unix_ns=stamp,
        )
        assert told == {"signed_text": vector["signed_text"], "command": vector["command"]}, vector["title"]


async def verifies_the_shared_hashes(bench: Bench) -> None:
    for vector in json.loads((VECTORS / "message_hashes.json").read_text())["messages"]:
        framed = frame_leased_batch(
            bytes.fromhex(vector["runs_hex"]),
            topic=vector["topic"],
            batch_id=3,
            first=0,
            attempt=1,
            stored_unix_ns=vector["stored_unix_ns"],
            shard=0,
        )
        for topic, integrity in ((vector["topic"], Integrity.VERIFIED), ("acme/x", Integrity.NOT_AS_STORED)):
            told = await bench.client.ask("read", response=framed.hex(), topic=topic)
            (message,) = told["messages"]
            assert message["integrity"] == integrity, vector["title"]
            assert message["payload_hash"] == vector["payload_hash"]
            assert (message["hash_chain"] == vector["hash_chain"]) is (integrity is Integrity.VERIFIED)


async def verifies_the_shared_envelopes(bench: Bench) -> None:
    shared = json.loads((VECTORS / "stream_envelopes.json").read_text())
    for case in shared["cases"]:
        told = await bench.client.ask(
            "verify",
            tenant=shared["tenant"],
            keys=shared["keys"],
            after=case["after"],
            gaps=case["gaps"],
            bodies=case["bodies"],
        )
        for said, expected in zip(told["outcomes"], case["outcomes"], strict=True):
            if expected == "refused":
                assert not said.startswith("b3:"), case["title"]
            else:
                assert said == expected, case["title"]


# -- on board --------------------------------------------------------------------------------------------


async def sends_no_token_to_another_installation(bench: Bench) -> None:
    token = await bench.token()
    elsewhere = bench.folder / "elsewhere"
    with pytest.raises(RefusedByClient) as refused:
        await bench.enrol(token, elsewhere, fingerprint="0" * 64)
    assert refused.value.reason == "wrong-installation"
    # It was not used up: the same token is good for its own installation, once.
    await bench.enrol(token, elsewhere)
    with pytest.raises(RefusedByClient) as refused:
        await bench.enrol(token, bench.folder / "twice")
    assert refused.value.reason == "enrolment-refused"


async def acts_as_its_service_through_the_principal(bench: Bench) -> None:
    told = await bench.client.ask("certificate")
    assert told["spiffe_id"] == f"spiffe://snavio.local/tenant/{TENANT}/service/{bench.client.language}"
    await bench.client.ask("renew")
    assert (await bench.send(b"after a renewal"))["verdict"] == Verdict.DELIVERED
    assert await bench.settle("ack", await bench.one()) == [DONE]


# -- sending ---------------------------------------------------------------------------------------------


async def sends_one_that_arrives_as_it_was(bench: Bench) -> None:
    outcome = await bench.send(b"\x00 as it was \xff")
    assert (outcome["verdict"], outcome["reason"], outcome["attempts"]) == (1, "delivered", 1)
    message = await bench.one()
    assert (message["id"], message["source"]) == (outcome["id"], bench.source)
    assert (message["target"], message["name"], message["attempt"]) == (bench.target, NAME, 1)
    assert bytes.fromhex(message["payload"]) == b"\x00 as it was \xff"
    assert message["integrity"] == Integrity.VERIFIED
    assert await bench.settle("ack", message) == [DONE]


async def is_told_each_refusal_among_the_delivered(bench: Bench) -> None:
    messages = [
        [bench.target, NAME, b"first".hex()],
        ["nobody-home", NAME, b"lost".hex()],
        [bench.target, "forbidden", b"denied".hex()],
        [bench.target, NAME, b"last".hex()],
    ]
    told = await bench.client.ask("send_many", messages=messages)
    reasons = [outcome["reason"] for outcome in told["outcomes"]]
    assert reasons == ["delivered", "route-missing", "acl-deny", "delivered"]
    assert len({outcome["id"] for outcome in told["outcomes"]}) == 4
    taken = await bench.client.ask("take", topic=bench.topic, most=2, visibility_ms=LEASE_MS)
    assert [bytes.fromhex(each["payload"]) for each in taken["messages"]] == [b"first", b"last"]
    assert await bench.settle("ack", *taken["messages"]) == [DONE, DONE]


async def is_refused_the_same_bytes_twice(bench: Bench) -> None:
    told = await bench.client.ask("send_twice", target=bench.target, name=NAME, payload=b"once".hex())
    assert told["verdicts"] == [Verdict.DELIVERED, Verdict.REPLAYED]
    assert await bench.settle("ack", await bench.one()) == [DONE]


async def is_told_the_first_outcome_of_a_duplicate(bench: Bench) -> None:
    sent = {"target": bench.target, "name": STRICT, "payload": b"7 EUR".hex(), "id": str(uuid.uuid4())}
    first = await bench.client.ask("send", **sent)
    assert (first["verdict"], first["detail"]) == (Verdict.DELIVERED, "")
    for _ in range(2):
        again = await bench.client.ask("send", **sent)
        assert (again["reason"], again["id"]) == ("duplicate", sent["id"])
        assert re.fullmatch(r"Stored at \S+Z as message \d+\.", again["detail"])
    other = await bench.client.ask("send", **{**sent, "payload": b"8 EUR".hex()})
    assert other["reason"] == "conflict"
    assert await bench.settle("ack", await bench.one()) == [DONE]


async def signs_for_a_new_audience_under_the_same_id(bench: Bench) -> None:
    async with (
        stage(bench.folder / "stage") as staged,
        client_process(bench.client.language, bench.command) as client,
    ):
        staged.shield.keep_frames = True
        await client.ask(
            "open",
            shield=staged.shield_server.address,
            signer=staged.signer_server.address,
            mailbox="127.0.0.1:1",
            folder=str(staged.certificates),
        )
        send = {"target": "discord-bot", "name": NAME, "payload": b"hello".hex()}
        assert (await client.ask("send", **send))["attempts"] == 1
        staged.shield.restart("shield-2")
        outcome = await client.ask("send", **send)
        assert (outcome["verdict"], outcome["attempts"]) == (Verdict.DELIVERED, 2)
        _, refused, again = (
            Command.FromString(raw)
            for frame in staged.shield.frames
            for raw in Submission.FromString(frame).command
        )
        assert (refused.audience, again.audience) == ("shield-1", "shield-2")
        assert refused.id == again.id == outcome["id"]
        assert refused.hmac != again.hmac
        await client.ask("close")


async def goes_on_when_its_key_was_revoked(bench: Bench) -> None:
    async with bench.mesh.operator() as operator:
        await operator.revoke_key(bench.source, "hmac-v1")
    outcome = await bench.send(b"under the next key")
    assert outcome["verdict"] == Verdict.DELIVERED
    message = await bench.one()
    assert (message["id"], message["attempt"]) == (outcome["id"], 1)
    assert await bench.settle("ack", message) == [DONE]
    assert await bench.receive(wait_ms=0) == []


# -- receiving -------------------------------------------------------------------------------------------


async def streams_a_thousand_each_way(bench: Bench) -> None:
    messages = [[bench.target, NAME, (b"%d" % number).hex()] for number in range(1000)]
    told = await bench.client.ask("send_many", messages=messages)
    assert {outcome["reason"] for outcome in told["outcomes"]} == {"delivered"}
    taken = (await bench.client.ask("stream", topic=bench.topic, most=1000, visibility_ms=LEASE_MS))[
        "messages"
    ]
    assert [bytes.fromhex(each["payload"]) for each in taken] == [b"%d" % number for number in range(1000)]
    assert {each["integrity"] for each in taken} == {Integrity.VERIFIED}
    assert set(await bench.settle("ack", *taken)) == {DONE}


async def gives_a_message_back_and_gets_it_again(bench: Bench) -> None:
    await bench.send(b"again")
    first = await bench.one()
    assert await bench.settle("extend", first, visibility_ms=LEASE_MS) == [DONE]
    assert await bench.settle("nack", first, delay_ms=0, reason="not now") == [DONE]
    second = await bench.one()
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    assert await bench.settle("nack", second, dead=True, reason="never") == [DONE]
    assert await bench.receive(wait_ms=0) == []


async def is_told_that_a_lease_has_ended(bench: Bench) -> None:
    await bench.send(b"slowly")
    late = await bench.one(visibility_ms=250)
    again = await bench.one()
    assert (again["id"], again["attempt"]) == (late["id"], 2)
    assert await bench.settle("ack", late) == [LATE]
    assert await bench.settle("extend", late, visibility_ms=LEASE_MS) == [LATE]
    assert await bench.settle("ack", again) == [DONE]
    assert await bench.settle("ack", again) == [GONE]


async def hands_out_no_payload_that_was_changed(bench: Bench) -> None:
    service = bench.folder / "service"
    async with (
        tampering_mailbox(bench.mesh, bench.topic, service, b"tamper with this") as (tampering, address),
        client_process(bench.client.language, bench.command) as client,
    ):
        await bench.open(client, mailbox=address)
        await bench.send(b"tamper with this")
        taken = await client.ask("take", topic=bench.topic, most=1, visibility_ms=LEASE_MS)
        (message,) = taken["messages"]
        assert bytes.fromhex(message["payload"]) == b"tamper with this"
        assert (message["attempt"], message["integrity"]) == (2, Integrity.VERIFIED)
        assert (tampering.changed, taken["integrity_failures"]) == (1, 1)
        (nack,) = tampering.nacks
        assert nack.reason.startswith("E_INTEGRITY") and not nack.dead
        told = await client.ask("ack", handles=[message["handle"]])
        assert told["codes"] == [DONE]
        await client.ask("close")


# -- events ----------------------------------------------------------------------------------------------


async def follows_its_tenants_events_and_goes_on_from_a_bookmark(bench: Bench) -> None:
    where = {
        "gateway": bench.mesh.processes.mesh.https,
        "signer": bench.mesh.addresses["signer"],
        "tenant": TENANT,
        "folder": str(bench.principal),
        "sources": [bench.source],
    }

    async def follow(most: int, after: dict[str, str] | None) -> dict[str, Any]:
        # Another process: a client answers one request at a time, and this one is to send meanwhile.
        async with client_process(bench.client.language, bench.command) as reader:
            return await reader.ask("events", **where, most=most, after=after)

    sent: list[str] = []

    async def read_while_sending(most: int, after: dict[str, str] | None, payload: bytes) -> dict[str, Any]:
        reading = asyncio.ensure_future(follow(most, after))
        while not reading.done():
            sent.append((await bench.send(payload))["id"])
            await asyncio.wait({reading}, timeout=0.7)
        return reading.result()

    async with asyncio.timeout(90):
        first = await read_while_sending(2, None, b"tell me")
        # What other cases have sent a moment ago may be cut only now, and comes too.
        while not (told := [each for each in _commands(first) if each in sent]):
            first = await read_while_sending(2, first["bookmark"], b"tell me")
        assert len(told) == len(set(told))
        assert {item["source"] for item in first["items"]} == {bench.source}
        # From there on nothing is missing and nothing comes twice.
        second = await read_while_sending(1, first["bookmark"], b"and more")
    told += _commands(second)
    assert told == sent[sent.index(told[0]) :][: len(told)]
    # One that is no longer kept: the signed state, and then what comes.
    async with asyncio.timeout(90):
        last = await read_while_sending(1, {"seq": "1", "digest": ""}, b"reset")
    (reset,) = last["items"]
    assert int(reset["reset"]) >= int(second["bookmark"]["seq"])
    taken = await bench.client.ask("take", topic=bench.topic, most=len(sent), visibility_ms=LEASE_MS)
    assert set(await bench.settle("ack", *taken["messages"])) == {DONE}


def _commands(told: dict[str, Any]) -> list[str]:
    """Ids of the commands in a stream: an event about several, such as a limit that was reached, has none."""
    return [
        event["command_id"] for item in told["items"] for event in item["events"] if "command_id" in event
    ]


async def believes_no_gateway_that_lies(bench: Bench) -> None:
    async with (
        hostile_gateway(CertificateFiles.in_folder(bench.mesh.certificates("gateway"))) as gateway,
        client_process(bench.client.language, bench.command) as reader,
    ):
        # Signed, in order, and not by a key of the tenant's.
        gateway.scripts = [serve((gateway.maker.seq + 1, gateway.maker.next()), stays=False)]
        where = {
            "gateway": gateway.address,
            "signer": bench.mesh.addresses["signer"],
            "tenant": TENANT,
            "folder": str(bench.principal),
        }
        with pytest.raises(RefusedByClient) as refused:
            await reader.ask(
                "events", **where, most=1, after={"seq": str(gateway.maker.seq - 1), "digest": ""}
            )
        assert refused.value.reason == "bad-signature"
        # It asked again from its bookmark each time, and gave up.
        assert gateway.asked == [str(gateway.maker.seq - 1)] * 8
        gateway.asked.clear()
        gateway.scripts = [refuse(410, "last_event_id_outside_replay_window", position={"epoch": "3"})]
        with pytest.raises(RefusedByClient):
            await reader.ask("events", **where, most=1, after={"seq": "7", "digest": ""})
        assert gateway.asked == ["7"] * 8


# -- the end of a certificate ----------------------------------------------------------------------------


async def has_another_certificate_when_one_ended(bench: Bench) -> None:
    folder = bench.folder / "short"
    async with client_process(bench.client.language, bench.command) as client:

        async def send_until_delivered() -> None:
            async with asyncio.timeout(60):
                while True:
                    outcome = await client.ask(
                        "send", target=bench.target, name=NAME, payload=b"asleep".hex()
                    )
                    if outcome["verdict"] == Verdict.DELIVERED:
                        return
                    # A client that was refused before it had renewed may say so; it may not stay that way.
                    assert outcome["reason"] in {"certificate-expired", "delivery-failure"}

        await bench.open(client, folder=str(folder), ttl_s=3)
        await send_until_delivered()
        client.sleep()
        ended = Leaf.in_folder(folder).not_after_ns
        await eventually(lambda: time.time_ns() > ended)
        client.wake()
        await send_until_delivered()
        assert (await client.ask("certificate"))["not_after_unix_ns"] > ended
        await client.ask("close")
    taken = await bench.client.ask("take", topic=bench.topic, most=2, visibility_ms=LEASE_MS)
    assert await bench.settle("ack", *taken["messages"]) == [DONE, DONE]


CASES: tuple[Callable[[Bench], Awaitable[None]], ...] = (
    signs_the_shared_vectors,
    verifies_the_shared_hashes,
    verifies_the_shared_envelopes,
    sends_no_token_to_another_installation,
    acts_as_its_service_through_the_principal,
    sends_one_that_arrives_as_it_was,
    is_told_each_refusal_among_the_delivered,
    is_refused_the_same_bytes_twice,
    is_told_the_first_outcome_of_a_duplicate,
    signs_for_a_new_audience_under_the_same_id,
    goes_on_when_its_key_was_revoked,
    streams_a_thousand_each_way,
    gives_a_message_back_and_gets_it_again,
    is_told_that_a_lease_has_ended,
    hands_out_no_payload_that_was_changed,
    follows_its_tenants_events_and_goes_on_from_a_bookmark,
    believes_no_gateway_that_lies,
    has_another_certificate_when_one_ended,
)
"""The list: every client passes all of them, in any order."""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_client(bench: Bench, case: Callable[[Bench], Awaitable[None]]) -> None:
    await case(bench)


# -- the clients' own tests ------------------------------------------------------------------------------


def test_the_go_client_passes_its_own_tests(tmp_path: Path) -> None:
    if absent := missing("go"):
        pytest.skip(f"needs {' and '.join(absent)}")
    described = tmp_path / "protos.binpb"
    run_protoc(f"--descriptor_set_out={described}")
    # One that stands in the cache was run on other descriptors.
    run("go", "test", "-count=1", "./...", folder=GO, environment={"SNAVIO_DESCRIPTORS": str(described)})


def test_the_typescript_client_passes_its_own_tests() -> None:
    if absent := missing("typescript"):
        pytest.skip(f"needs {' and '.join(absent)}")
    install_typescript()
    run("npm", "run", "--silent", "build", folder=TYPESCRIPT)
    run("node", "--test", "dist/test/", folder=TYPESCRIPT)
    assert '"resolved"' not in (TYPESCRIPT / "package-lock.json").read_text()
