"""Fast in this process, between scripted neighbours: what it dispatches from its cache, and when it does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from snavio.domain.verdict import Verdict
from snavio.errors import Unauthenticated, Unavailable
from snavio.hop.server_stream import BatchStream
from snavio.pki import serial_of
from snavio.v1 import registry_pb2 as reg
from snavio.v1.batch_pb2 import Hello
from tests.support.fast import (
    ACL_EXPIRED,
    CACHE_MISS,
    GOOD,
    NAME,
    ROUTE_EXPIRED,
    SOURCE,
    SYNC,
    TARGET,
    Scene,
    fast,
)
from tests.support.mailbox import MailboxFixture, running_mailbox
from tests.support.neighbours import ScriptedRegistry, answering, eventually, runs_of
from tests.support.wire import mesh_batch, run


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with fast(tmp_path) as running:
        yield running


@pytest.fixture
async def warm(scene: Scene) -> Scene:
    scene.registry.allow(SOURCE, TARGET, NAME)
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"
    return scene


# --- where the rules come from


async def test_what_changes_has_not_told_is_for_slow_to_decide(scene: Scene) -> None:
    assert await scene.way() == CACHE_MISS
    scene.registry.write(route=reg.Route(target=TARGET, name=NAME, topic="acme/discord-bot"))
    await scene.registry.was_read()
    # A route without the right to use it allows nothing, and refuses nothing either.
    assert await scene.way() == CACHE_MISS
    scene.registry.write(acl=reg.AclEntry(source=SOURCE, target=TARGET, name=NAME))
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"
    [topic] = scene.mailbox.batches[-1].topic
    assert topic.topic == "acme/discord-bot"
    assert [each.source for each in topic.run] == [SOURCE]


async def test_kinds_that_are_none_of_fasts_business_change_nothing(warm: Scene) -> None:
    for entry in (
        {"principal": reg.Principal(tenant="acme", principal="ci")},
        {"access_request": reg.AccessRequest(source=SOURCE, target=TARGET, name=NAME)},
        {"source_quota": reg.SourceQuota(source=SOURCE, target=TARGET, name=NAME, max=1)},
        {"alert_channel": reg.AlertChannel(tenant="acme", name="oncall")},
        {"suspension": reg.Suspension(source=SOURCE)},
        {},  # A kind that a newer Registry knows.
    ):
        warm.registry.write(**entry)
        warm.registry.write(deleted=True, **entry)
    await warm.registry.was_read()
    assert await warm.way() == "mailbox"


async def test_the_right_of_one_source_is_not_anothers(warm: Scene) -> None:
    assert await warm.ask(warm.forge.command(), source="acme/billin") == [GOOD]
    assert await warm.ask(warm.forge.command(), source="evil/billing") == [GOOD]
    assert warm.slow.commands == 2
    assert warm.mailbox.commands == 1


async def test_a_revoked_right_ends_with_the_next_pull(warm: Scene) -> None:
    warm.registry.write(deleted=True, acl=reg.AclEntry(source=SOURCE, target=TARGET, name=NAME))
    await warm.registry.was_read()
    assert await warm.way() == CACHE_MISS


async def test_a_deleted_route_ends_with_the_next_pull(warm: Scene) -> None:
    warm.registry.write(deleted=True, route=reg.Route(target=TARGET, name=NAME))
    await warm.registry.was_read()
    assert await warm.way() == CACHE_MISS


async def test_a_route_that_becomes_sync_goes_to_slow_every_time(warm: Scene) -> None:
    warm.registry.write(
        route=reg.Route(target=TARGET, name=NAME, topic="acme/discord-bot", profile=reg.PROFILE_SYNC)
    )
    await warm.registry.was_read()
    assert [await warm.way(), await warm.way()] == [SYNC, SYNC]


async def test_a_new_directory_epoch_clears_everything(warm: Scene) -> None:
    warm.registry.log.clear()
    warm.registry.epoch = 2
    await warm.registry.was_read()
    assert await warm.way() == CACHE_MISS
    warm.registry.allow(SOURCE, TARGET, NAME)
    await warm.registry.was_read()
    assert await warm.way() == "mailbox"


async def test_a_directory_that_comes_in_pages_is_read_to_its_end_before_fast_serves(tmp_path: Path) -> None:
    registry = ScriptedRegistry(page=3)
    for number in range(20):
        registry.allow(SOURCE, f"bot-{number}", NAME)
    registry.allow(SOURCE, TARGET, NAME)
    registry.write(deleted=True, acl=reg.AclEntry(source=SOURCE, target="bot-0", name=NAME))
    async with fast(tmp_path, registry=registry) as scene:
        assert await scene.way() == "mailbox"
        assert await scene.ask(scene.forge.command(target="bot-0")) == [GOOD]
        assert scene.slow.commands == 1


# --- Registry is away


@pytest.mark.parametrize(
    ("profile", "stale_s", "expired_s"),
    [(reg.PROFILE_LOW, 89, 90), (reg.PROFILE_MODERATE, 19, 20), (reg.PROFILE_CRITICAL, 3, 4)],
    ids=["low", "moderate", "critical"],
)
async def test_without_registry_a_command_goes_on_while_stale_and_is_then_for_slow(
    scene: Scene, profile: int, stale_s: int, expired_s: int
) -> None:
    scene.registry.allow(SOURCE, TARGET, NAME, profile=profile)
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"
    scene.registry.away = True
    scene.clock.advance(seconds=stale_s)
    assert await scene.way() == "mailbox"
    scene.clock.advance(seconds=expired_s - stale_s)
    assert await scene.way() == ACL_EXPIRED
    scene.registry.away = False
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"


async def test_routes_expire_on_their_own_limit(tmp_path: Path) -> None:
    async with fast(tmp_path, route_fresh_ms=1000, route_stale_ms=2000) as scene:
        scene.registry.allow(SOURCE, TARGET, NAME)
        await scene.registry.was_read()
        scene.registry.away = True
        scene.clock.advance(seconds=2)
        assert await scene.way() == ROUTE_EXPIRED


# --- answers


async def test_one_cold_command_does_not_hold_the_verdicts_of_999_warm_ones(warm: Scene) -> None:
    warm.slow.script = warm.slow.hold
    commands = [warm.forge.command() for _ in range(1000)]
    commands[500] = warm.forge.command(target="nobody-home")
    await warm.stream.send(warm.batch(*commands))
    partial = await warm.stream.partial(warm.seq)
    while partial.codes.count(GOOD) < 999:
        partial = await warm.stream.partial(warm.seq)
    assert partial.codes[500] is Verdict.UNDECIDED
    assert not partial.final
    await eventually(lambda: warm.slow.held)
    warm.slow.release(Verdict.ROUTE_MISSING)
    answer = await warm.stream.answer(warm.seq)
    assert answer.codes == [GOOD] * 500 + [Verdict.ROUTE_MISSING] + [GOOD] * 499


async def test_without_slow_only_the_escalated_fail_with_a_hint(warm: Scene) -> None:
    await warm.bench.neighbours["slow"].stop()
    await eventually(lambda: not warm.app.slow.connected.is_set())
    await warm.stream.send(warm.batch(warm.forge.command(target="nobody-home"), warm.forge.command()))
    partial = await warm.stream.partial(warm.seq)
    assert partial.codes == [Verdict.UNDECIDED, GOOD]
    warm.clock.advance(seconds=5)
    answer = await warm.stream.answer(warm.seq)
    assert answer.codes == [Verdict.DELIVERY_FAILURE, GOOD]
    assert [(each.index, each.retry_after_ms > 0) for each in answer.refusals] == [(0, True)]


async def test_what_the_mailbox_did_not_answer_in_time_is_an_unknown_outcome(warm: Scene) -> None:
    warm.mailbox.script = warm.mailbox.hold
    await warm.stream.send(warm.batch(warm.forge.command(), budget_ms=800))
    await eventually(lambda: warm.mailbox.held)
    assert warm.mailbox.batches[-1].header.budget_ms <= 800
    warm.clock.advance(seconds=1)
    assert (await warm.stream.answer(warm.seq)).codes == [Verdict.OUTCOME_UNKNOWN]


async def test_a_frame_that_is_not_a_batch_is_refused_and_the_stream_goes_on(warm: Scene) -> None:
    await warm.stream.send(b"\xff" * 50)
    assert (await warm.stream.answer(0)).frame_refusal is Verdict.MALFORMED
    assert await warm.way() == "mailbox"


async def test_a_shield_whose_certificate_was_revoked_is_not_served_on_its_open_stream(warm: Scene) -> None:
    files = warm.bench.authority.folder / "mesh--shield"
    warm.signer.revoked.append(serial_of(x509.load_pem_x509_certificate((files / "cert.pem").read_bytes())))
    before = warm.signer.asked_denylist
    await eventually(lambda: warm.signer.asked_denylist > before + 1)
    with pytest.raises(Unauthenticated) as refused:
        await warm.ask(warm.forge.command())
    assert refused.value.reason == "certificate-revoked"


# --- a mailbox that goes away


async def test_a_mailbox_that_restarts_gets_the_same_batch_again_under_the_same_name(warm: Scene) -> None:
    warm.mailbox.script = warm.mailbox.hold
    await warm.stream.send(warm.batch(*(warm.forge.command() for _ in range(3))))
    await eventually(lambda: warm.mailbox.held)
    await warm.bench.neighbours["mailbox"].stop()
    warm.mailbox.held.clear()
    warm.mailbox.script = None
    await warm.bench.neighbours["mailbox"].start()
    answer = await warm.stream.answer(warm.seq)
    assert answer.codes == [GOOD] * 3
    first, again = warm.mailbox.hellos[-2:]
    assert (again.instance, again.epoch) == (first.instance, first.epoch)
    assert first.instance == "fast-0"
    assert first.epoch > 0
    assert warm.mailbox.frames[-1] == warm.mailbox.frames[-2]


async def test_what_the_mailbox_stored_before_its_answer_was_lost_is_not_delivered_twice(
    tmp_path: Path,
) -> None:
    async with (
        running_mailbox(tmp_path / "mailbox") as office,
        fast(tmp_path / "fast", authority=office.authority) as scene,
    ):
        scene.registry.allow(SOURCE, TARGET, NAME)
        await scene.registry.was_read()
        forwarded: list[bytes] = []

        async def lose_the_first_answer(batch: Any, stream: BatchStream) -> None:
            codes = await _forward(office, scene.mailbox.hellos[-1], scene.mailbox.frames[-1])
            forwarded.append(codes)
            if len(forwarded) == 1:
                raise Unavailable("the wire broke behind the fsync")
            stream.reply(answering(batch, codes), True)

        scene.mailbox.script = lose_the_first_answer
        commands = [scene.forge.command(payload=b"%d" % number) for number in range(5)]
        assert await scene.ask(*commands) == [GOOD] * 5
        assert forwarded == [bytes([GOOD]) * 5] * 2
        got = await office.consumer().receive("acme/discord-bot")
        assert [message.payload for message in got.messages] == [b"%d" % number for number in range(5)]


async def _forward(office: MailboxFixture, hello: Hello, frame: bytes) -> bytes:
    """Forward to the real mailbox, under the sender's name."""
    sender = await office.sender(instance=hello.instance, epoch=hello.epoch)
    try:
        return await sender.send(frame)
    finally:
        sender.close()


async def test_runs_of_several_sources_keep_their_sources_on_the_way(warm: Scene) -> None:
    warm.registry.write(acl=reg.AclEntry(source="acme/courier", target=TARGET, name=NAME))
    await warm.registry.was_read()
    mine, theirs = warm.forge.command(payload=b"mine"), warm.forge.command(payload=b"theirs")
    warm.seq += 1
    frame = mesh_batch(
        [run(SOURCE, [mine]), run("acme/courier", [theirs]), run(SOURCE, [mine])], batch_seq=warm.seq
    )
    assert (await warm.stream.ask(frame, warm.seq)).codes == [GOOD] * 3
    got = [(each.source, list(each.command)) for each in runs_of(warm.mailbox.batches[-1])]
    assert got == [(SOURCE, [mine]), ("acme/courier", [theirs]), (SOURCE, [mine])]
