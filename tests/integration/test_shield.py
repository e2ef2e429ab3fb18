"""Shield in this process, between scripted neighbours: rules that need a moving clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from services.shield.app import ShieldApp
from services.shield.servicer import ROOM_SECONDS
from services.shield.settings import ShieldSettings
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated, Unauthenticated, Unavailable
from snavio.hop.server_stream import BatchStream
from snavio.host.introspection import METHOD
from snavio.host.shares import ShareLimit
from snavio.pki import serial_of
from snavio.rpc.credentials import CertificateFiles
from snavio.v1 import registry_pb2 as reg
from snavio.v1.batch_pb2 import Refusal, Verdicts
from snavio.v1.command_pb2 import Command
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from snavio.v1.signer_pb2 import KeyVersion
from tests.support.neighbours import (
    Bench,
    ScriptedHop,
    ScriptedRegistry,
    ScriptedSigner,
    answering,
    commands_of,
    eventually,
    runs_of,
)
from tests.support.wire import (
    NS,
    SUBMIT_BATCH,
    WITHIN_S,
    Forge,
    Key,
    RawProducer,
    RawStream,
    audience_of,
    encode,
    format_timestamp,
    submission,
    tag_of,
)

GOOD = Verdict.DELIVERED
SECRETS = {"acme/billing": b"b" * 32, "acme/courier": b"c" * 32}


@dataclass
class Scene:
    """Shield with its neighbours."""

    bench: Bench
    signer: ScriptedSigner
    registry: ScriptedRegistry
    fast: ScriptedHop
    app: ShieldApp
    address: str
    audience: str = ""

    @property
    def clock(self) -> Any:
        return self.bench.clock

    def producer(
        self, service: str = "billing", *, ttl_s: int = 3600, version: str = "hmac-v1", secret: bytes = b""
    ) -> RawProducer:
        files = self.bench.authority.service("acme", service, ttl_s=ttl_s)
        key = Key(version, secret or SECRETS[f"acme/{service}"])
        forge = Forge(key, self.audience, clock=self.clock)
        return RawProducer(self.bench.channel(self.address, files, "shield"), forge)

    def serial(self, service: str = "billing") -> str:
        files = CertificateFiles.in_folder(self.bench.authority.folder / f"service-acme-{service}")
        return serial_of(x509.load_pem_x509_certificate(files.certificate.read_bytes()))

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.app.admission.counters()
        return counters


def key(number: int, secret: bytes, **fields: Any) -> KeyVersion:
    return KeyVersion(version=f"hmac-v{number}", secret=secret, not_before_unix_ns=1, **fields)


@asynccontextmanager
async def shield(folder: Path, *, budget_ms: int = 5000, **settings: Any) -> AsyncIterator[Scene]:
    bench, signer, registry = Bench(folder), ScriptedSigner(), ScriptedRegistry()
    fast = ScriptedHop.fast()
    for source, secret in SECRETS.items():
        signer.put(source, key(1, secret))
    await bench.neighbour("signer", signer.methods())
    await bench.neighbour("registry", registry.methods())
    await bench.neighbour("fast", fast.methods())
    app = ShieldApp(
        bench.mesh("shield", budget_ms=budget_ms), ShieldSettings.model_validate(settings), bench.clock
    )
    try:
        address = f"127.0.0.1:{await app.start()}"
        scene = Scene(bench, signer, registry, fast, app, address)
        scene.audience = await audience_of(address, bench.authority.service("acme", "greeter"))
        yield scene
    finally:
        fast.release()
        # What a test left open is nothing to wait for.
        bench.clock.advance(seconds=3600)
        await app.drain()
        await bench.close()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with shield(tmp_path) as running:
        yield running


# --- a certificate ends while its stream is open


async def test_a_certificate_that_expires_mid_stream_is_refused_batch_by_batch_after_what_was_taken(
    scene: Scene,
) -> None:
    billing = scene.producer(ttl_s=60)
    scene.clock.advance(seconds=57)
    scene.fast.script = scene.fast.hold
    stream = await billing.stream()
    await stream.send(submission([billing.forge.command()], batch_seq=1))
    await eventually(lambda: scene.fast.held)
    scene.clock.advance(seconds=4)
    late = billing.forge.command()
    await stream.send(submission([late], batch_seq=2))
    scene.fast.release()
    assert (await stream.answer(1)).codes == [GOOD]
    assert (await stream.answer(2)).codes == [Verdict.CERTIFICATE_EXPIRED]
    assert scene.fast.commands == 1
    # Nothing of the refused batch was remembered: after a renewal the same bytes pass.
    renewed = scene.producer()
    assert (await renewed.submit(late)).codes == [GOOD]


async def test_a_certificate_that_is_revoked_mid_stream_is_refused_batch_by_batch_after_what_was_taken(
    scene: Scene,
) -> None:
    billing, uploader = scene.producer(), scene.producer("courier")
    scene.fast.script = scene.fast.hold
    stream, other = await billing.stream(), await uploader.stream()
    await stream.send(submission([billing.forge.command()], batch_seq=1))
    await eventually(lambda: scene.fast.held)
    scene.signer.revoked.append(scene.serial())
    await scene.signer.was_read()
    await stream.send(submission([billing.forge.command()], batch_seq=2))
    scene.fast.release()
    assert (await stream.answer(1)).codes == [GOOD]
    assert (await stream.answer(2)).codes == [Verdict.CERTIFICATE_REVOKED]
    await stream.send(submission([billing.forge.command()] * 3, batch_seq=3))
    assert (await stream.answer(3)).codes == [Verdict.CERTIFICATE_REVOKED] * 3
    with pytest.raises(Unauthenticated):
        await billing.submit(billing.forge.command())
    assert (await other.ask(submission([uploader.forge.command()]))).codes == [GOOD]


async def test_while_signer_is_away_traffic_goes_on_until_revocations_cannot_be_known(tmp_path: Path) -> None:
    async with shield(tmp_path, keys_stale_ms=86_400_000) as scene:
        billing = scene.producer(ttl_s=86_400)
        stream = await billing.stream()
        scene.signer.away = True
        scene.clock.advance(seconds=3500)
        assert (await stream.ask(submission([billing.forge.command()]))).codes == [GOOD]
        scene.clock.advance(seconds=101)
        late = await stream.ask(submission([billing.forge.command()], batch_seq=2), 2)
        assert late.codes == [Verdict.SATURATED]
        assert "revoked" in late.refusals[0].detail
        with pytest.raises(Unavailable) as refused:
            await billing.submit(billing.forge.command())
        assert refused.value.reason == "revocations-unknown"
        scene.signer.away = False
        await scene.signer.was_read()
        again = await stream.ask(submission([billing.forge.command()], batch_seq=3), 3)
        assert again.codes == [GOOD]


# --- good standing


@pytest.mark.parametrize("who", ["signer", "registry"])
async def test_nothing_is_let_in_on_keys_or_suspensions_that_are_too_old(scene: Scene, who: str) -> None:
    billing = scene.producer()
    authority = scene.signer if who == "signer" else scene.registry
    authority.away = True
    scene.clock.advance(seconds=170)
    assert (await billing.submit(billing.forge.command())).codes == [GOOD]
    scene.clock.advance(seconds=11)
    single = await billing.submit(billing.forge.command())
    assert single.codes == [Verdict.SATURATED]
    assert single.refusals[0].retry_after_ms == 1000
    batch = await billing.submit_batch(submission([billing.forge.command()] * 3))
    assert batch.codes == [Verdict.SATURATED] * 3
    assert "out of date" in batch.refusals[0].detail
    assert scene.fast.commands == 1
    assert scene.counters()["nonces_live"] <= 1
    authority.away = False
    before = authority.asked
    await eventually(lambda: authority.asked > before + 1)
    assert (await billing.submit(billing.forge.command())).codes == [GOOD]


async def test_keys_go_from_fresh_to_stale_to_expired_and_each_use_is_counted(scene: Scene) -> None:
    async def status() -> dict[str, float]:
        channel = scene.bench.channel(scene.address, scene.bench.authority.operator("ops"), "shield")
        told = await channel.call(METHOD, StatusRequest(), StatusResponse, timeout_s=5)
        return {each.name: each.value for each in (*told.counter, *told.gauge)} | {
            each.name: each.count for each in told.latency
        }

    producer = scene.producer()

    async def send(count: int) -> list[Verdict]:
        commands = [producer.forge.command() for _ in range(count)]
        return (await producer.submit_batch(submission(commands))).codes

    assert await send(3) == [GOOD] * 3
    before = await status()
    assert before["Snavio.Cache.Usage.Fresh"] == 3
    assert before["Snavio.Cache.HMAC.StaleWindowSeconds"] == 0
    assert before["Snavio.Cache.HMAC.RefreshDuration"] > 0
    scene.signer.away = True
    scene.clock.advance(seconds=65)
    assert await send(2) == [GOOD] * 2
    stale = await status()
    assert (stale["Snavio.Cache.Usage.Stale"], stale["Snavio.Cache.HMAC.Usage.Stale"]) == (2, 2)
    assert 0 < stale["Snavio.Cache.HMAC.StaleWindowSeconds"] < 10
    scene.clock.advance(seconds=120)
    assert await send(1) == [Verdict.SATURATED]
    assert (await status())["Snavio.Cache.Usage.Expired"] >= 1
    scene.signer.away = False
    # A stale cache is read again, and the event has its age before.
    await scene.signer.was_read()
    ages = [
        float(str(each.event.fields()["age_seconds"])) for each in scene.app.refreshes.after(0, limit=10_000)
    ]
    assert max(ages) >= 180


async def test_a_stream_on_keys_that_are_too_old_is_refused_command_by_command_and_stays_open(
    scene: Scene,
) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    scene.signer.away = True
    scene.clock.advance(seconds=181)
    answer = await stream.ask(submission([billing.forge.command()] * 2))
    # Not `outcome-unknown`: nothing was let in, and the producer may know that.
    assert answer.codes == [Verdict.SATURATED] * 2
    assert [refusal.retry_after_ms for refusal in answer.refusals] == [1000, 1000]
    assert Verdict.SATURATED.retryable
    assert scene.fast.commands == 0
    scene.signer.away = False
    await scene.signer.was_read()
    assert (await stream.ask(submission([billing.forge.command()], batch_seq=2), 2)).codes == [GOOD]


async def test_a_suspended_source_is_refused_until_its_suspension_ends(scene: Scene) -> None:
    billing, uploader = scene.producer(), scene.producer("courier")
    stream = await billing.stream()
    scene.registry.write(suspension=reg.Suspension(source="acme/billing", reason="abuse"))
    await scene.registry.was_read()
    assert (await stream.ask(submission([billing.forge.command()]))).codes == [Verdict.SUSPENDED]
    assert (await uploader.submit(uploader.forge.command())).codes == [GOOD]
    scene.registry.write(deleted=True, suspension=reg.Suspension(source="acme/billing"))
    await scene.registry.was_read()
    assert (await stream.ask(submission([billing.forge.command()], batch_seq=2), 2)).codes == [GOOD]


async def test_a_suspended_tenant_is_out_until_the_end_that_was_said_and_in_after_it(scene: Scene) -> None:
    billing, courier = scene.producer(), scene.producer("courier")
    until = scene.clock.unix_ns() + 60 * NS
    scene.registry.write(suspension=reg.Suspension(source="acme/*", until_unix_ns=until))
    await scene.registry.was_read()
    for producer in (billing, courier):
        assert (await producer.submit(producer.forge.command())).codes == [Verdict.SUSPENDED]
    scene.clock.advance(seconds=59)
    await scene.registry.was_read()
    assert (await billing.submit(billing.forge.command())).codes == [Verdict.SUSPENDED]
    # Nobody lifts it, and Registry does not answer: the end was known here.
    scene.registry.away = True
    scene.clock.advance(seconds=2)
    async with asyncio.timeout(20):
        while (await billing.submit(billing.forge.command())).codes == [Verdict.SUSPENDED]:
            await asyncio.sleep(0.05)
    for producer in (billing, courier):
        assert (await producer.submit(producer.forge.command())).codes == [GOOD]


async def test_a_suspension_that_was_made_longer_or_endless_does_not_end_at_its_first_end(
    scene: Scene,
) -> None:
    billing = scene.producer()
    until = scene.clock.unix_ns() + 60 * NS
    scene.registry.write(suspension=reg.Suspension(source="acme/billing", until_unix_ns=until))
    await scene.registry.was_read()
    scene.registry.write(suspension=reg.Suspension(source="acme/billing"))
    await scene.registry.was_read()
    scene.clock.advance(seconds=61)
    await scene.registry.was_read()
    assert (await billing.submit(billing.forge.command())).codes == [Verdict.SUSPENDED]


async def test_a_ban_from_the_warm_path_does_not_keep_a_source_out(scene: Scene) -> None:
    billing = scene.producer()
    scene.registry.write(ban=reg.Ban(list=reg.BAN_LIST_COLD_ONLY, source="acme/billing"))
    scene.registry.write()  # A kind that a newer Registry knows.
    await scene.registry.was_read()
    assert (await billing.submit(billing.forge.command())).codes == [GOOD]


async def test_a_new_directory_that_does_not_suspend_a_source_lets_it_in(scene: Scene) -> None:
    billing = scene.producer()
    scene.registry.write(suspension=reg.Suspension(source="acme/billing"))
    await scene.registry.was_read()
    assert (await billing.submit(billing.forge.command())).codes == [Verdict.SUSPENDED]
    scene.registry.log.clear()
    scene.registry.epoch = 2
    await scene.registry.was_read()
    assert (await billing.submit(billing.forge.command())).codes == [GOOD]


# --- keys


async def test_both_keys_sign_while_a_rotation_overlaps_and_the_old_one_ends_by_the_signed_time(
    scene: Scene,
) -> None:
    old, new = scene.producer(), scene.producer(version="hmac-v2", secret=b"n" * 32)
    ends = scene.clock.unix_ns() + 10 * NS
    scene.signer.put(
        "acme/billing", key(1, SECRETS["acme/billing"], not_after_unix_ns=ends), key(2, b"n" * 32)
    )
    await scene.signer.was_read()
    stream = await old.stream()
    answer = await stream.ask(submission([old.forge.command(), new.forge.command(), old.forge.command()]))
    assert answer.codes == [GOOD] * 3
    # A run speaks of one key version.
    runs = [(run.key_version, len(run.command)) for batch in scene.fast.batches for run in runs_of(batch)]
    assert runs == [("hmac-v1", 1), ("hmac-v2", 1), ("hmac-v1", 1)]
    before_the_end = old.forge.command(ahead_s=9.9)
    scene.clock.advance(seconds=11)
    answer = await stream.ask(submission([before_the_end, old.forge.command()], batch_seq=2), 2)
    assert answer.codes == [GOOD, Verdict.KEY_EXPIRED]


async def test_a_revoked_key_ends_at_once_whatever_the_signed_time(scene: Scene) -> None:
    billing = scene.producer()
    signed_before = billing.forge.command(ahead_s=-30)
    scene.signer.put("acme/billing", key(1, SECRETS["acme/billing"], revoked=True), key(2, b"n" * 32))
    await scene.signer.was_read()
    answer = await billing.submit_batch(submission([signed_before, billing.forge.command()]))
    assert answer.codes == [Verdict.KEY_REVOKED] * 2


async def test_a_restored_key_store_replaces_every_key(scene: Scene) -> None:
    billing, uploader = scene.producer(), scene.producer("courier")
    scene.signer.keysets = {"acme/courier": [key(1, SECRETS["acme/courier"])]}
    scene.signer.store_epoch, scene.signer.version = 2, 1
    await scene.signer.was_read()
    assert (await billing.submit(billing.forge.command())).codes == [Verdict.UNKNOWN_KEY_VERSION]
    assert (await uploader.submit(uploader.forge.command())).codes == [GOOD]


# --- time


async def test_the_window_is_inclusive_on_both_sides(scene: Scene) -> None:
    billing, now = scene.producer(), scene.clock.unix_ns()
    stamps = [now - 60 * NS - 1, now - 60 * NS, now + 60 * NS, now + 60 * NS + 1]
    commands = [billing.forge.command(timestamp=format_timestamp(stamp)) for stamp in stamps]
    answer = await billing.submit_batch(submission(commands))
    outside = Verdict.TIMESTAMP_OUTSIDE_WINDOW
    assert answer.codes == [outside, GOOD, GOOD, outside]


async def test_a_nonce_is_remembered_for_as_long_as_the_window_could_accept_it_again(scene: Scene) -> None:
    billing = scene.producer()
    command = billing.forge.command(ahead_s=60)
    assert (await billing.submit(command)).codes == [GOOD]
    for _ in range(4):
        scene.clock.advance(seconds=30)
        assert (await billing.submit(command)).codes == [Verdict.REPLAYED]
    scene.clock.advance(ns=1)
    assert (await billing.submit(command)).codes == [Verdict.TIMESTAMP_OUTSIDE_WINDOW]


async def test_sources_of_one_tenant_fill_the_tenants_share_of_the_nonces(tmp_path: Path) -> None:
    # A quarter of it is one tenant's.
    async with shield(tmp_path, nonce_capacity=4000) as scene:
        billing, uploader = scene.producer(), scene.producer("courier")
        answer = await billing.submit_batch(submission([billing.forge.command() for _ in range(1000)]))
        assert answer.codes == [GOOD] * 1000
        answer = await billing.submit(billing.forge.command())
        assert answer.codes == [Verdict.SATURATED]
        assert answer.refusals[0].retry_after_ms > 0
        assert (await uploader.submit(uploader.forge.command())).codes == [Verdict.SATURATED]
        scene.clock.advance(seconds=62)
        assert (await billing.submit(billing.forge.command())).codes == [GOOD]


async def test_invalid_commands_leave_the_nonce_table_as_it_was(scene: Scene) -> None:
    billing = scene.producer()
    assert (await billing.submit(billing.forge.command())).codes == [GOOD]
    before = scene.counters()
    fields = billing.forge.fields()
    tag = tag_of(billing.forge.key.secret, fields)
    spoilings: list[dict[str, bytes]] = [
        {"payload": b"?"},
        {"audience": b"x"},
        {"key_version": b"hmac-v7"},
        {"timestamp": b"2020-01-01T00:00:00Z"},
        {"source": b""},
        {"id": b"?"},
    ]
    flood = [encode({**fields, **spoiling, "hmac": tag}) for spoiling in spoilings for _ in range(150)]
    answer = await billing.submit_batch(submission(flood))
    assert GOOD not in answer.codes
    assert len(set(answer.codes)) == len(spoilings)
    after = scene.counters()
    assert after["nonces_live"] == before["nonces_live"] == 1
    assert after["accepted"] == before["accepted"]
    assert (await billing.submit(billing.forge.seal(fields))).codes == [GOOD]


# --- budgets, and a Fast that is away


@pytest.mark.parametrize(("asked", "most"), [(60_000, 4900), (0, 4900), (700, 630), (2**32 - 1, 4900)])
async def test_the_budget_of_a_batch_is_capped_by_the_mesh(scene: Scene, asked: int, most: int) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    # Of the rest, a tenth and at most a tenth of a second is kept for the way back.
    await stream.ask(submission([billing.forge.command()], budget_ms=asked))
    await billing.submit(billing.forge.command(), budget_ms=asked)
    assert [batch.header.budget_ms for batch in scene.fast.batches] == [most, most]


async def test_what_never_left_for_fast_is_a_delivery_failure_with_a_hint(scene: Scene) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    await stream.ask(submission([billing.forge.command()]))
    await scene.bench.neighbours["fast"].stop()
    await eventually(lambda: not scene.app.fast.connected.is_set())
    await stream.send(submission([billing.forge.command(), billing.forge.command()], batch_seq=2))
    await eventually(lambda: scene.counters()["accepted"] == 3)
    scene.clock.advance(seconds=5)
    answer = await stream.answer(2)
    assert answer.codes == [Verdict.DELIVERY_FAILURE] * 2
    assert answer.refusals[0].retry_after_ms > 0


async def test_what_fast_did_not_answer_in_time_is_an_unknown_outcome(scene: Scene) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    scene.fast.script = scene.fast.hold
    await stream.send(submission([billing.forge.command()]))
    await eventually(lambda: scene.fast.held)
    scene.clock.advance(seconds=5)
    answer = await stream.answer(1)
    assert answer.codes == [Verdict.OUTCOME_UNKNOWN]
    assert answer.refusals[0].retry_after_ms > 0


async def test_what_fast_had_when_it_died_is_an_unknown_outcome_and_the_next_batch_is_delivered(
    scene: Scene,
) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    scene.fast.script = scene.fast.hold
    await stream.send(submission([billing.forge.command()]))
    await eventually(lambda: scene.fast.held)
    await scene.bench.neighbours["fast"].stop()
    assert (await stream.answer(1)).codes == [Verdict.OUTCOME_UNKNOWN]
    scene.fast.held.clear()
    scene.fast.script = None
    await scene.bench.neighbours["fast"].start()
    assert (await stream.ask(submission([billing.forge.command()], batch_seq=2), 2)).codes == [GOOD]
    # Shield itself never sent anything again.
    assert scene.fast.commands == 2


# --- answers


async def test_a_refusal_of_shield_is_answered_while_fast_still_thinks(scene: Scene) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    scene.fast.script = scene.fast.hold
    await stream.send(submission([billing.forge.command(), b"?", billing.forge.command()]))
    partial = await stream.partial()
    assert partial.codes == [Verdict.UNDECIDED, Verdict.MALFORMED]
    await eventually(lambda: scene.fast.held)
    scene.fast.release()
    assert (await stream.answer()).codes == [GOOD, Verdict.MALFORMED, GOOD]


async def test_partial_answers_of_fast_are_joined_in_the_producers_numbering(scene: Scene) -> None:
    billing = scene.producer()

    async def in_parts(batch: Any, stream: BatchStream) -> None:
        denied = Refusal(index=1, reason=Verdict.ACL_DENY, retry_after_ms=9, detail="no")  # type: ignore[arg-type]
        stream.reply(answering(batch, [Verdict.ACL_DENY], first=1, refusals=[denied], final=False), False)
        stream.reply(answering(batch, [GOOD]), True)

    scene.fast.script = in_parts
    answer = await billing.submit_batch(
        submission([b"?", billing.forge.command(), b"?", billing.forge.command()], batch_seq=9)
    )
    assert answer.codes == [Verdict.MALFORMED, GOOD, Verdict.MALFORMED, Verdict.ACL_DENY]
    assert answer.final
    assert [(each.index, each.retry_after_ms, each.detail) for each in answer.refusals] == [(3, 9, "no")]


async def test_a_joined_answer_keeps_everything_that_its_parts_say(scene: Scene) -> None:
    billing = scene.producer()
    unheard_of = 199
    unfair = Refusal(
        index=0,
        reason=Verdict.FAIRNESS_VIOLATION,  # type: ignore[arg-type]
        retry_after_ms=9,
        throttle_until_unix_ns=7,
        detail="too much",
        source_share=0.91,
        competing_share=0.12,
        dispatch_volume=60,
    )
    news = Refusal(index=1, reason=unheard_of, detail="of a newer Fast")  # type: ignore[arg-type]

    async def in_parts(batch: Any, stream: BatchStream) -> None:
        codes = [Verdict.FAIRNESS_VIOLATION]
        stream.reply(answering(batch, codes, refusals=[unfair], final=False), False)
        stream.reply(answering(batch, [unheard_of], first=1, refusals=[news]), True)

    scene.fast.script = in_parts
    commands = [billing.forge.command(), billing.forge.command()]
    raw = await billing.channel.call_raw(SUBMIT_BATCH, submission(commands), timeout_s=WITHIN_S)
    answer = Verdicts.FromString(raw)
    assert answer.codes == bytes([Verdict.FAIRNESS_VIOLATION, unheard_of])
    assert list(answer.refusal) == [unfair, news]


async def test_the_longest_budget_ends_before_a_unary_call_does(tmp_path: Path) -> None:
    async with shield(tmp_path, budget_ms=60_000) as scene:
        scene.fast.script = scene.fast.hold
        billing = scene.producer()
        asking = asyncio.create_task(billing.submit(billing.forge.command()))
        await eventually(lambda: scene.fast.held)
        scene.clock.advance(seconds=61)
        assert (await asking).codes == [Verdict.OUTCOME_UNKNOWN]
        assert scene.app.host.server._unary_limit_s > 60 + ROOM_SECONDS


async def test_unary_calls_travel_together_and_each_gets_its_own_verdict(scene: Scene) -> None:
    count = 200

    async def by_payload(batch: Any, stream: BatchStream) -> None:
        numbers = [int(Command.FromString(command).payload) for command in commands_of(batch)]
        codes = [GOOD if number % 2 else Verdict.ACL_DENY for number in numbers]
        # Nothing is answered before all have come in, however slowly they do: what waits then shares batches.
        await eventually(lambda: scene.counters()["accepted"] == count)
        stream.reply(answering(batch, codes), True)

    scene.fast.script = by_payload
    producers = [scene.producer("billing"), scene.producer("courier")]
    answers = await asyncio.gather(
        *(
            producers[number % 4 // 2].submit(
                producers[number % 4 // 2].forge.command(payload=b"%d" % number)
            )
            for number in range(count)
        )
    )
    assert [answer.codes for answer in answers] == [
        [GOOD if number % 2 else Verdict.ACL_DENY] for number in range(count)
    ]
    assert len(scene.fast.batches) < count / 2
    for run in (run for batch in scene.fast.batches for run in runs_of(batch)):
        for raw in run.command:
            command = Command.FromString(raw)
            number = int(command.payload)
            assert run.source == ("acme/billing", "acme/courier")[number % 4 // 2]


# --- back-pressure


async def test_a_fast_that_does_not_answer_stops_shield_from_reading_beyond_its_window(
    tmp_path: Path,
) -> None:
    async with shield(tmp_path, batches_in_flight=4) as scene:
        billing, uploader = scene.producer(), scene.producer("courier")
        scene.fast.script = scene.fast.hold
        stream = await billing.stream()
        batches = [
            submission([billing.forge.command() for _ in range(10)], batch_seq=seq) for seq in range(1, 31)
        ]

        async def send_all() -> None:
            for batch in batches:
                await stream.send(batch)

        sending = asyncio.create_task(send_all())
        await eventually(lambda: scene.counters()["accepted"] >= 40)
        # Another producer gets its turn meanwhile, and with it any batch that was read too many.
        other = await uploader.stream()
        await other.send(submission([uploader.forge.command()]))
        await eventually(lambda: scene.counters()["accepted"] >= 41)
        await eventually(lambda: scene.fast.commands == 41)
        assert (await scene.producer("courier").submit(b"?")).codes == [Verdict.MALFORMED]
        assert scene.counters()["accepted"] == 41
        scene.fast.release()
        await sending
        for seq in range(1, 31):
            assert (await stream.answer(seq)).codes == [GOOD] * 10


async def test_unknown_key_versions_do_not_make_shield_ask_signer_for_each(scene: Scene) -> None:
    billing = scene.producer()
    stream = await billing.stream()
    before, began = scene.signer.asked, time.monotonic()
    for seq in range(1, 301):
        answer = await stream.ask(
            submission([billing.forge.command(key_version="hmac-v9")], batch_seq=seq), seq
        )
        assert answer.codes == [Verdict.UNKNOWN_KEY_VERSION]
    # The pull's own pace is one in 40-50 ms; nudged or not, there must be some quiet in between.
    assert scene.signer.asked - before <= 5 + 2 * (time.monotonic() - began) / 0.04


async def test_three_hundred_streams_of_one_source_are_served_and_more_than_its_share_are_refused(
    tmp_path: Path,
) -> None:
    async with shield(tmp_path) as scene:
        billing = scene.producer()
        streams = [await billing.stream() for _ in range(300)]
        answer = await streams[-1].ask(submission([billing.forge.command()], batch_seq=1), 1)
        assert answer.final
        share = scene.app.host.shares.streams
        share.limit = ShareLimit(share.limit.total, 300, share.limit.reserve)
        with pytest.raises(Saturated) as refusal:
            await RawStream(billing.channel).listen()
        assert refusal.value.reason == "tenant-share"
        assert "acme has its share of open streams: 300 of 300." in str(refusal.value)
        streams[0].cancel()
        await eventually(lambda: share.held("acme") == 299)
        await billing.stream()
