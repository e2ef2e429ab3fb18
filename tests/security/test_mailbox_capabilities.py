"""Capabilities at a mailbox over real mTLS: nothing without one, nothing beyond it, nothing after its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.mailbox.access import capabilities as module
from services.mailbox.access.capabilities import SPIKE
from services.mailbox.settings import MailboxSettings
from snavio.clock import ManualClock
from snavio.domain.capability import MAX_BYTES, MAX_CAVEATS, Capability, verify
from snavio.domain.caveat import Caveat, Operation, Quota
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed, Saturated, SnavioError, Unauthenticated, Unavailable
from snavio.rpc.authorisation import authorise
from snavio.rpc.capability import CapabilityProvider, CapabilityScope
from snavio.rpc.capability_request import ask_signer
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.status import error_of
from snavio.sdk import Consumer
from snavio.v1 import mailbox_pb2
from snavio.v1.mailbox_pb2 import Receipts
from tests.support.mailbox import (
    SERVICE,
    TOPIC,
    MailboxFixture,
    ReceivingPeer,
    SendingPeer,
    commands,
    running_mailbox,
    send_batch,
)
from tests.support.neighbours import eventually

WORKER = "spiffe://snavio.local/tenant/acme/service/worker"
FAST = "spiffe://snavio.local/mesh/fast"
CONSUME = frozenset({Operation.RECV, Operation.ACK, Operation.NACK, Operation.EXTEND, Operation.STATS})
DONE = b"\x01"
MAILBOX = mailbox_pb2.DESCRIPTOR.services_by_name["Mailbox"]


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    # What is on disk is no matter here, and memory is faster.
    one = MailboxFixture(tmp_path, settings=MailboxSettings(amnesia=True, i_accept_losing_messages=True))
    one.mesh = one.mesh.model_copy(update={"pull_interval_ms": 50})
    await one.start()
    yield one
    await one.stop()
    if one.signer is not None:
        await one.signer.drain(0)


def advance(office: MailboxFixture, seconds: float) -> None:
    assert isinstance(office.clock, ManualClock)
    office.clock.advance(seconds=seconds)


async def heard(office: MailboxFixture) -> None:
    """The mailbox has heard what Signer says now."""
    before = office.mint.asked
    await eventually(lambda: office.mint.asked >= before + 2)


async def filled(office: MailboxFixture, count: int = 10) -> None:
    sender = await office.sender()
    assert await sender.send(send_batch(1, (TOPIC, commands(count)))) == DONE * count


def consumer(office: MailboxFixture, *more: Caveat, **made: Any) -> tuple[ReceivingPeer, Capability]:
    held = office.mint.make(WORKER, *more, **{"realm": TOPIC, "operations": CONSUME, **made})
    return office.consumer(capability=held), held


async def refusal(call: Awaitable[Any]) -> str:
    with pytest.raises(SnavioError) as refused:
        await call
    return refused.value.reason


async def every_call(peer: ReceivingPeer) -> list[str]:
    got = Receipts(boot_epoch=1, msg_id=[1024], attempt=[1])
    return [
        await refusal(call)
        for call in (
            peer.receive(),
            peer.ack(got),
            peer.nack(got),
            peer.extend(got, visibility_ms=1000),
            peer.stats(),
            peer.stats(TOPIC),
        )
    ]


def bare(office: MailboxFixture, files: CertificateFiles) -> MeshChannel:
    """A channel that presents nothing."""
    channel = office.channel(files)
    channel._capability_provider = None
    return channel


async def test_I_8_no_operation_works_without_a_capability(office: MailboxFixture) -> None:
    await filled(office)
    peer = ReceivingPeer(bare(office, office.authority.service("acme", "worker")))
    assert await every_call(peer) == ["cap-required"] * 6
    operator = ReceivingPeer(bare(office, office.authority.operator("admin")))
    assert await refusal(operator.stats(TOPIC)) == "cap-required"


async def test_I_8_a_sender_without_a_capability_stores_nothing(office: MailboxFixture) -> None:
    sender = SendingPeer(bare(office, office.authority.mesh("fast")))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await sender.connect()
    assert isinstance(error := error_of(ended.value), Unauthenticated)
    assert error.reason == "cap-required" and error.signer == office.mesh.signer
    assert await office.operator().stats() == {}


async def test_I_8_forged_foreign_and_stolen_ones_open_nothing(office: MailboxFixture) -> None:
    held = office.mint.make(WORKER)
    forged = Capability(held.identifier, held.caveats, bytes(32))
    assert await every_call(office.consumer(capability=forged)) == ["cap-forged"] * 6
    assert await every_call(office.consumer(name="thief", capability=held)) == ["cap-holder"] * 6


async def test_I_8_a_capability_opens_what_it_names_and_nothing_else(office: MailboxFixture) -> None:
    await filled(office)
    peer, _ = consumer(office, operations=frozenset({Operation.RECV}))
    got = await peer.receive()
    assert len(got.messages) == 10
    for call in (peer.ack(got.receipts()), peer.nack(got.receipts()), peer.stats()):
        with pytest.raises(NotAllowed) as refused:
            await call
        assert refused.value.reason == "cap-operation" and str(refused.value).startswith("E_CAP_SCOPE")
    assert await refusal(peer.receive("acme/orders")) == "cap-topic"
    # A certificate is still needed: the widest capability opens no other tenant's topic.
    assert await refusal(office.consumer("evil").receive()) == "not-owner"


async def test_I_8_stats_of_all_topics_tell_of_those_that_the_capability_covers(
    office: MailboxFixture,
) -> None:
    sender = await office.sender()
    await sender.send(send_batch(1, ("acme/a", commands(1)), ("acme/b", commands(2))))
    assert set(await office.consumer().stats()) == {"acme/a", "acme/b"}
    peer, _ = consumer(office, realm="acme/b")
    assert set(await peer.stats()) == {"acme/b"}


async def test_C_6_a_narrowed_capability_is_as_good_within_its_bounds(office: MailboxFixture) -> None:
    await filled(office)
    wide = office.mint.make(WORKER, realm="acme/*", operations=CONSUME)
    narrow = wide.attenuate(
        Caveat(topics=(TOPIC,)), Caveat(operations=frozenset({Operation.RECV, Operation.ACK}))
    )
    peer = office.consumer(capability=narrow)
    got = await peer.receive()
    assert await peer.ack(got.receipts()) == DONE * 10
    assert await refusal(peer.stats(TOPIC)) == "cap-operation"
    assert await refusal(peer.receive("acme/orders")) == "cap-topic"


async def test_C_6_a_narrowed_sender_is_refused_for_the_topics_beyond(office: MailboxFixture) -> None:
    held = office.mint.make(FAST, Caveat(topics=("acme/*",)), operations=frozenset({Operation.SEND}))
    sender = await office.sender(capability=held)
    codes = await sender.send(send_batch(1, ("acme/a", commands(2)), ("beta/a", commands(3))))
    assert codes == bytes([1, 1, 67, 67, 67])


async def test_I_15_an_expired_capability_is_refused_on_an_open_stream_and_by_calls(
    office: MailboxFixture,
) -> None:
    await filled(office)
    peer, _ = consumer(office, ttl_s=60)
    sender = await office.sender(capability=office.mint.make(FAST, ttl_s=60), instance="other")
    assert await sender.send(send_batch(1, (TOPIC, commands(1)))) == DONE
    advance(office, 60)
    assert await every_call(peer) == ["cap-expired"] * 6
    await sender.write(send_batch(2, (TOPIC, commands(1))))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await sender.read()
    assert error_of(ended.value).reason == "cap-expired"
    assert (await office.operator().stats())[TOPIC] == (11, 0)


async def test_G_10_a_revoked_capability_fails_new_work_within_the_cache_time(office: MailboxFixture) -> None:
    await filled(office)
    peer, held = consumer(office)
    fast = office.mint.make(FAST)
    sender = await office.sender(capability=fast, instance="other")
    assert await sender.send(send_batch(1, (TOPIC, commands(1)))) == DONE
    got = await peer.receive(max_messages=4)
    office.mint.revoke(held)
    office.mint.revoke(fast)
    await heard(office)
    # Not a nanosecond of the cache time has passed on the mailbox's clock.
    assert await refusal(peer.receive()) == "cap-revoked"
    assert await refusal(peer.extend(got.receipts(), visibility_ms=1000)) == "cap-revoked"
    await sender.write(send_batch(2, (TOPIC, commands(1))))
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await sender.read()
    assert error_of(ended.value).reason == "cap-revoked"
    # What was in flight is settled, and nothing else is.
    assert await peer.ack(got.receipts(0, 2)) == DONE * 2
    assert await peer.nack(got.receipts(2, 4)) == DONE * 2
    fresh, _ = consumer(office)
    assert len((await fresh.receive()).messages) == 9


async def test_I_15_an_ack_in_flight_is_honoured_until_the_capability_expires(office: MailboxFixture) -> None:
    await filled(office)
    peer, held = consumer(office, ttl_s=100)
    got = await peer.receive(visibility_ms=200_000)
    office.mint.revoke(held)
    await heard(office)
    advance(office, 99)
    assert await peer.ack(got.receipts(0, 5)) == DONE * 5
    advance(office, 1)
    assert await refusal(peer.ack(got.receipts(5, 10))) == "cap-expired"


async def test_I_15_a_consumer_that_waits_is_not_handed_what_comes_after_its_revocation(
    office: MailboxFixture,
) -> None:
    peer, held = consumer(office)
    waiting = asyncio.create_task(peer.receive(wait_ms=8000))
    await eventually(lambda: office.app is not None and office.app.waiters.shares.used == 1)
    office.mint.revoke(held)
    await heard(office)
    await filled(office)
    assert await refusal(waiting) == "cap-revoked"
    assert (await office.operator().stats())[TOPIC] == (10, 0)


async def test_I_15_a_revoked_holder_and_a_revoked_root_are_felt_too(office: MailboxFixture) -> None:
    by_holder, _ = consumer(office)
    await by_holder.stats()
    office.mint.revoke_holder("tenant:acme")
    await heard(office)
    assert await refusal(by_holder.stats()) == "cap-revoked"
    advance(office, 1)
    by_root, _ = consumer(office)
    await by_root.stats()
    office.mint.put_line(TOPIC, version=2, minimum=2)
    await heard(office)
    assert await refusal(by_root.stats()) == "cap-revoked"
    fresh, _ = consumer(office, version=2)
    await fresh.stats()


async def test_I_15_a_rotated_secret_is_known_to_the_mailbox_and_the_old_one_overlaps(
    office: MailboxFixture,
) -> None:
    before, _ = consumer(office)
    await before.stats()
    office.mint.secrets["1111111111111111"] = b"n" * 32
    after, _ = consumer(office)
    await heard(office)
    await after.stats()
    await before.stats()
    del office.mint.secrets["00112233445566ff"]
    await heard(office)
    assert await refusal(before.stats()) == "cap-revoked"
    await after.stats()


async def test_C_6_a_spike_of_denials_makes_the_mailbox_ask_signer_at_once(tmp_path: Path) -> None:
    office = MailboxFixture(tmp_path)
    # So seldom that only the spike can be what made it ask.
    office.mesh = office.mesh.model_copy(update={"pull_interval_ms": 60_000})
    await office.start()
    try:
        peer, held = consumer(office)
        await peer.stats()
        office.mint.revoke(held)
        await peer.stats()
        stranger = ReceivingPeer(bare(office, office.authority.service("acme", "worker")))
        for _ in range(SPIKE):
            assert await refusal(stranger.stats()) == "cap-required"
        await eventually(lambda: office.mint.asked >= 2)
        await eventually(lambda: office.app is not None and office.app.capabilities.gauges()["revoked"] == 1)
        assert await refusal(peer.stats()) == "cap-revoked"
    finally:
        await office.stop()
        assert office.signer is not None
        await office.signer.drain(0)


async def test_I_15_the_mailbox_works_on_while_signer_is_away(office: MailboxFixture) -> None:
    await filled(office)
    office.mint.away = True
    peer, held = consumer(office)
    for _ in range(4):
        advance(office, 600)
        got = await peer.receive(max_messages=1)
        assert await peer.ack(got.receipts()) == DONE
    office.mint.revoke(held)
    office.mint.away = False
    await heard(office)
    assert await refusal(peer.receive()) == "cap-revoked"


async def test_C_6_a_quota_bounds_what_is_received_in_an_interval(office: MailboxFixture) -> None:
    await filled(office, 100)
    peer, _ = consumer(office, Caveat(quota=Quota(30, 60_000)))
    assert [len((await peer.receive(max_messages=20)).messages) for _ in range(2)] == [20, 10]
    with pytest.raises(Saturated) as full:
        await peer.receive()
    assert full.value.reason == "cap-quota" and 0 < full.value.retry_after_ms <= 60_000
    advance(office, 60)
    assert len((await peer.receive(max_messages=1000)).messages) == 30


async def test_C_6_waiting_for_nothing_uses_up_no_quota(office: MailboxFixture) -> None:
    peer, _ = consumer(office, Caveat(quota=Quota(5, 60_000)))
    for _ in range(10):
        assert (await peer.receive(wait_ms=1)).messages == []
    await filled(office)
    assert len((await peer.receive()).messages) == 5


async def test_C_6_a_stream_is_verified_once_in_the_cache_time_whatever_it_carries(
    office: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = 0

    def counted(*asked: Any) -> Any:
        nonlocal verified
        verified += 1
        return verify(*asked)

    monkeypatch.setattr(module, "verify", counted)
    sender = await office.sender()
    for seq in range(1, 21):
        assert await sender.send(send_batch(seq, (TOPIC, commands(50)))) == DONE * 50
    assert verified == 1


async def test_I_8_the_sdk_asks_for_its_capability_by_itself(office: MailboxFixture) -> None:
    """Not even Signer's address is needed: the mailbox says where to ask."""
    await filled(office)
    files = office.authority.service("acme", "worker")
    async with Consumer(
        mailbox=office.address, topic=TOPIC, certificates=files.certificate.parent
    ) as receiving:
        for _ in range(10):
            await (await anext(receiving)).ack()
        await receiving.flush()
    assert office.mint.issued == 1
    assert (await office.operator().stats())[TOPIC] == (0, 0)


async def test_G_10_a_consumer_goes_on_with_a_new_capability_after_a_revocation(
    office: MailboxFixture,
) -> None:
    sender = await office.sender()
    files = office.authority.service("acme", "worker")
    received: list[bytes] = []
    async with Consumer(
        mailbox=office.address, topic=TOPIC, certificates=files.certificate.parent, signer=office.mesh.signer
    ) as receiving:
        for turn in range(3):
            assert (
                await sender.send(send_batch(turn + 1, (TOPIC, commands(20, mark=f"{turn}-")))) == DONE * 20
            )
            for number in range(20):
                command = await anext(receiving)
                received.append(command.payload)
                await command.ack()
                if number == 10:
                    advance(office, 1)
                    office.mint.revoke_holder(WORKER)
                    await heard(office)
                    advance(office, 1)
        await receiving.flush()
        assert receiving.late_acks == 0
    assert len(set(received)) == 60 == len(received)
    assert (await office.operator().stats())[TOPIC] == (0, 0)
    assert office.mint.issued >= 3


async def test_G_10_a_capability_is_renewed_before_it_ends(office: MailboxFixture) -> None:
    files = office.authority.service("acme", "worker")
    ask = ask_signer(office.mesh.signer, files=files)
    capability_provider = CapabilityProvider(
        CapabilityScope(TOPIC, ("stats",), ttl_s=90), ask, clock=office.clock
    )
    channel = MeshChannel(
        office.address, files=files, service="mailbox", capability_provider=capability_provider
    )
    try:
        peer = ReceivingPeer(channel)
        await peer.stats()
        assert (office.mint.issued, capability_provider.generation()) == (1, 1)
        advance(office, 59)
        await peer.stats()
        assert office.mint.issued == 1
        advance(office, 1)
        await peer.stats()
        await eventually(lambda: capability_provider.generation() == 2)
        advance(office, 40)
        await peer.stats()
        assert office.mint.issued == 2
    finally:
        await capability_provider.close()
        await channel.close()


async def test_I_15_with_signer_away_the_old_capability_serves_to_its_end_and_then_it_is_unavailable(
    office: MailboxFixture,
) -> None:
    files = office.authority.service("acme", "worker")
    capability_provider = CapabilityProvider(
        CapabilityScope(TOPIC, ("stats",), ttl_s=90),
        ask_signer(office.mesh.signer, files=files),
        clock=office.clock,
    )
    channel = MeshChannel(
        office.address, files=files, service="mailbox", capability_provider=capability_provider
    )
    try:
        peer = ReceivingPeer(channel)
        await peer.stats()
        office.mint.away = True
        advance(office, 89)
        await peer.stats()
        advance(office, 1)
        with pytest.raises(Unavailable):
            await peer.stats()
    finally:
        await capability_provider.close()
        await channel.close()


async def test_I_8_several_capabilities_in_one_call_are_none(office: MailboxFixture) -> None:
    files = office.authority.service("acme", "worker")
    channel = bare(office, files)
    text = office.mint.make(WORKER).text()
    call = channel._current().unary_unary(SERVICE + "Stats")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(b"", timeout=5, metadata=(("snavio-capability", text), ("snavio-capability", text)))
    assert error_of(refused.value).reason == "cap-malformed"


async def test_C_6_the_largest_capability_there_can_be_travels(office: MailboxFixture) -> None:
    held = office.mint.make(WORKER, realm="acme/*")
    while len(held.caveats) < MAX_CAVEATS and len(held.encode()) < MAX_BYTES - 80:
        held = held.attenuate(Caveat(topics=("acme/*", "acme/billing", "acme/" + "x" * 30)))
    assert len(held.encode()) > MAX_BYTES // 2
    assert await office.consumer(capability=held).stats() == {}


def _asking(message: Any) -> bytes:
    """A request about the topic, as far as the message can say so."""
    if message.name == "RecvStreamRequest":
        opening = mailbox_pb2.ReceiveRequest(topic=TOPIC, visibility_ms=30_000)
        asked: bytes = mailbox_pb2.RecvStreamRequest(open=opening, credit=1).SerializeToString()
        return asked
    request = message._concrete_class()
    if "topic" in message.fields_by_name and not message.fields_by_name["topic"].is_repeated:
        # Topics of routes take messages from the mesh alone, with whatever capability.
        request.topic = "acme/own/jobs" if message.name == "SendRequest" else TOPIC
    serialised: bytes = request.SerializeToString()
    return serialised


@pytest.mark.parametrize("method", list(MAILBOX.methods), ids=lambda method: method.name)
async def test_I_8_every_method_there_is_refuses_who_presents_nothing(
    office: MailboxFixture, method: Any
) -> None:
    """A method that is added later is here by itself."""
    name = f"/{MAILBOX.full_name}/{method.name}"
    callers = {
        Identity("snavio.local", IdentityKind.MESH, "fast"): office.authority.mesh("fast"),
        Identity("snavio.local", IdentityKind.MESH, "slow"): office.authority.mesh("slow"),
        Identity("snavio.local", IdentityKind.SERVICE, "worker", "acme"): office.authority.service(
            "acme", "worker"
        ),
        Identity("snavio.local", IdentityKind.OPERATOR, "admin"): office.authority.operator("admin"),
    }
    allowed = [files for identity, files in callers.items() if authorise(name, identity)]
    assert allowed
    for files in allowed:
        channel = bare(office, files)
        if method.name == "SendStream":
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await SendingPeer(channel).connect()
            reason = error_of(ended.value).reason
        elif method.client_streaming or method.server_streaming:
            call = channel.stream(name)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await call.write(_asking(method.input_type))
                async with asyncio.timeout(10):
                    while await call.read() is not grpc.aio.EOF:
                        pass
            reason = error_of(ended.value).reason
        else:
            reason = await refusal(channel.call_raw(name, _asking(method.input_type), timeout_s=5))
        assert reason == "cap-required"


async def test_G_10_a_stream_of_leases_ends_with_its_capability_and_hands_out_nothing_more(
    office: MailboxFixture,
) -> None:
    held = office.mint.make(WORKER, realm=TOPIC, operations=CONSUME)
    channel = office.channel(office.authority.service("acme", "worker"), held)
    call = channel.stream(SERVICE + "RecvStream")
    opening = mailbox_pb2.ReceiveRequest(topic=TOPIC, visibility_ms=30_000)
    await call.write(mailbox_pb2.RecvStreamRequest(open=opening, credit=100).SerializeToString())
    await filled(office, 3)
    async with asyncio.timeout(10):
        got = mailbox_pb2.ReceiveResponse.FromString(await call.read())
    assert sum(len(run.command) for batch in got.batch for run in batch.run) == 3
    office.mint.revoke(held)
    await heard(office)
    sender = await office.sender(instance="later")
    assert await sender.send(send_batch(1, (TOPIC, commands(5)))) == DONE * 5
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async with asyncio.timeout(10):
            await call.read()
    assert error_of(ended.value).reason == "cap-revoked"
    assert (await office.operator().stats())[TOPIC] == (5, 3)
    # What it was given before, it may still acknowledge.
    ids = [batch.batch_id * 1024 + batch.first + number for batch in got.batch for number in range(3)]
    receipts = Receipts(boot_epoch=got.boot_epoch, msg_id=ids, attempt=[1, 1, 1])
    assert await ReceivingPeer(channel).ack(receipts) == DONE * 3


async def test_I_8_a_tenant_sends_to_its_own_queues_with_a_capability_and_within_its_quota(
    office: MailboxFixture,
) -> None:
    topic = "acme/own/jobs"
    held = office.mint.make(
        WORKER, Caveat(quota=Quota(3, 60_000)), realm=topic, operations=frozenset({Operation.SEND})
    )
    channel = office.channel(office.authority.service("acme", "worker"), held)

    async def post(count: int, to: str = topic) -> Any:
        request = mailbox_pb2.SendRequest(
            topic=to, message=[mailbox_pb2.NewMessage(payload=b"x") for _ in range(count)]
        )
        return await channel.call(SERVICE + "Send", request, mailbox_pb2.SendResponse, timeout_s=5.0)

    await post(2)
    assert await refusal(post(1, "acme/own/other")) == "cap-topic"
    assert await refusal(ReceivingPeer(channel).receive(topic)) == "cap-operation"
    with pytest.raises(Saturated):
        await post(2)
    await post(1)
    assert (await office.operator().stats())[topic] == (3, 0)


async def test_C_6_what_is_not_stored_uses_up_no_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "acme/own/jobs"
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topic_messages=5)) as office:
        held = office.mint.make(
            WORKER, Caveat(quota=Quota(4, 60_000)), realm=topic, operations=frozenset({Operation.SEND})
        )
        channel = office.channel(office.authority.service("acme", "worker"), held)

        async def post(count: int, key: str = "") -> Any:
            messages = [mailbox_pb2.NewMessage(payload=b"x", idem_key=key) for _ in range(count)]
            request = mailbox_pb2.SendRequest(topic=topic, message=messages)
            return await channel.call(SERVICE + "Send", request, mailbox_pb2.SendResponse, timeout_s=5.0)

        await post(3, "k")  # the first of three copies
        for _ in range(6):
            assert (await post(1, "k")).codes == bytes([Verdict.DUPLICATE])
        assert office.app is not None
        store = office.app.parts.retention._store

        def full(*_given: object, **_named: object) -> Any:
            raise Saturated("full", retry_after_ms=1)

        with monkeypatch.context() as patch:
            patch.setattr(store, "commit", full)
            for _ in range(3):
                with pytest.raises(Saturated):
                    await post(3)
        filler = await office.sender()
        await filler.send(send_batch(1, (topic, commands(4))))
        for _ in range(3):
            with pytest.raises(Saturated, match="full"):
                await post(3)
        office.app.parts.retention._delivery.topics.topic(topic).by_shard[0] = 0  # type: ignore[union-attr]
        await post(3)
        with pytest.raises(Saturated, match="quota"):
            await post(1)


async def test_C_6_what_a_dispatcher_sends_in_vain_uses_up_no_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = Identity("snavio.local", IdentityKind.MESH, "fast").spiffe_id
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topic_messages=6)) as office:
        held = office.mint.make(fast, Caveat(quota=Quota(4, 60_000)), operations=frozenset({Operation.SEND}))
        sender = await office.sender(capability=held)
        same = commands(1, ids=["01890a5d-ac96-774b-bcce-b302099a8057"])
        assert await sender.send(send_batch(1, (TOPIC, same), once=True)) == bytes([Verdict.DELIVERED])
        for seq in range(2, 9):
            codes = await sender.send(send_batch(seq, (TOPIC, same), once=True))
            assert codes == bytes([Verdict.DUPLICATE])
        filler = await office.sender(instance="fast-1")
        await filler.send(send_batch(1, (TOPIC, commands(4))))
        for seq in range(9, 12):
            codes = await sender.send(send_batch(seq, (TOPIC, commands(3))))
            assert codes == bytes([Verdict.SATURATED]) * 3
        assert office.app is not None

        def broken(*_given: object, **_named: object) -> Any:
            raise Unavailable("broken")

        with monkeypatch.context() as patch:
            patch.setattr(office.app.parts.retention._store, "commit", broken)
            for seq in range(12, 15):
                codes = await sender.send(send_batch(seq, ("acme/other", commands(3))))
                assert codes == bytes([Verdict.OUTCOME_UNKNOWN]) * 3
        codes = await sender.send(send_batch(15, ("acme/other", commands(3)), (TOPIC, commands(1))))
        assert codes == bytes([Verdict.DELIVERED]) * 3 + bytes([Verdict.SATURATED])
