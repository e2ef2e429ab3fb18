"""Slow in this process, between scripted neighbours: it decides with an answer of Registry, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from snavio.domain.verdict import Verdict
from snavio.errors import Unauthenticated
from snavio.pki import serial_of
from snavio.v1 import registry_pb2 as reg
from tests.support.neighbours import eventually
from tests.support.slow import GOOD, NAME, SOURCE, TARGET, Scene, always, resolution, slow


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with slow(tmp_path) as running:
        yield running


async def test_an_allowed_command_is_sent_to_the_topic_that_registry_named(scene: Scene) -> None:
    assert (await scene.ask(scene.forge.command())).codes == [GOOD]
    [topic] = scene.mailbox.batches[0].topic
    assert topic.topic == f"acme/{TARGET}"
    assert [each.source for each in topic.run] == [SOURCE]


async def test_each_decision_is_made_with_the_rules_of_its_moment(scene: Scene) -> None:
    codes = []
    for rule in (
        resolution(),
        resolution(allowed=False),
        resolution(),
        resolution(routed=False),
        resolution(suspended=True),
        resolution(),
    ):
        scene.registry.resolve = always(rule)
        codes += (await scene.ask(scene.forge.command())).codes
    assert codes == [
        GOOD,
        Verdict.ACL_DENY,
        GOOD,
        Verdict.ROUTE_MISSING,
        Verdict.SUSPENDED,
        GOOD,
    ]
    assert len(scene.registry.resolved) == 6
    assert scene.mailbox.commands == 3


async def test_a_suspended_source_is_refused_even_if_it_is_allowed(scene: Scene) -> None:
    scene.registry.resolve = always(resolution(suspended=True, allowed=True))
    assert (await scene.ask(scene.forge.command())).codes == [Verdict.SUSPENDED]
    assert scene.mailbox.commands == 0


async def test_without_registry_everything_is_refused_with_a_hint(scene: Scene) -> None:
    scene.registry.away = True
    answer = await scene.ask(scene.forge.command(), scene.forge.command(name="other"))
    assert answer.codes == [Verdict.DELIVERY_FAILURE] * 2
    assert all(each.retry_after_ms > 0 for each in answer.refusals)
    assert answer.refusals
    await scene.bench.neighbours["registry"].stop()
    assert (await scene.ask(scene.forge.command())).codes == [Verdict.DELIVERY_FAILURE]
    assert scene.mailbox.commands == 0
    scene.registry.away = False
    await scene.bench.neighbours["registry"].start()

    async def delivered() -> None:
        while (await scene.ask(scene.forge.command())).codes != [GOOD]:
            await asyncio.sleep(0.05)

    await asyncio.wait_for(delivered(), 20)


async def test_a_registry_that_does_not_answer_is_waited_for_only_so_long(tmp_path: Path) -> None:
    async with slow(tmp_path, resolve_timeout_ms=50) as scene:
        never = asyncio.Event()

        async def silent(_request: reg.ResolveRequest) -> bytes:
            await never.wait()
            return b""

        scene.registry.resolve = silent
        answer = await scene.ask(scene.forge.command())
        assert answer.codes == [Verdict.DELIVERY_FAILURE]
        assert answer.refusals[0].retry_after_ms > 0
        never.set()


@pytest.mark.parametrize("given", [0, 1, 3, 5])
async def test_an_answer_of_another_length_is_not_believed(scene: Scene, given: int) -> None:
    async def misfit(_request: reg.ResolveRequest) -> bytes:
        raw: bytes = reg.ResolveResponse(resolution=[resolution()] * given).SerializeToString()
        return raw

    scene.registry.resolve = misfit
    commands = [scene.forge.command(), scene.forge.command(name="other")]
    answer = await scene.ask(*commands)
    assert answer.codes == [Verdict.DELIVERY_FAILURE] * 2
    assert all(each.retry_after_ms > 0 for each in answer.refusals)
    assert scene.mailbox.commands == 0


async def test_an_answer_that_cannot_be_read_is_not_believed(scene: Scene) -> None:
    async def noise(_request: reg.ResolveRequest) -> bytes:
        return b"\xff" * 20

    scene.registry.resolve = noise
    assert (await scene.ask(scene.forge.command())).codes == [Verdict.DELIVERY_FAILURE]
    assert scene.mailbox.commands == 0


async def test_a_route_without_a_topic_delivers_nothing_and_harms_no_other_batch(scene: Scene) -> None:
    async def homeless(request: reg.ResolveRequest) -> bytes:
        route = reg.Route(target=TARGET, name=NAME)
        answers = [reg.Resolution(route=route, allowed=True)] * len(request.key)
        raw: bytes = reg.ResolveResponse(resolution=answers).SerializeToString()
        return raw

    scene.registry.resolve = homeless
    scene.mailbox.script = scene.mailbox.hold
    await scene.stream.send(scene.batch(scene.forge.command()))
    await eventually(lambda: scene.registry.resolved)
    scene.registry.resolve = always(resolution())
    await scene.stream.send(scene.batch(scene.forge.command()))
    await eventually(lambda: any(topic.topic for b in scene.mailbox.batches for topic in b.topic))
    scene.mailbox.release()
    assert (await scene.stream.answer(2)).codes == [GOOD]


async def test_commands_of_one_key_are_asked_once_and_keys_never_mix(scene: Scene) -> None:
    async def by_name(request: reg.ResolveRequest) -> bytes:
        answers = [resolution(allowed=key.name == NAME) for key in request.key]
        raw: bytes = reg.ResolveResponse(resolution=answers).SerializeToString()
        return raw

    scene.registry.resolve = by_name
    commands = [scene.forge.command(name=NAME if number % 2 else "other") for number in range(100)]
    answer = await scene.ask(*commands)
    assert answer.codes == [GOOD if number % 2 else Verdict.ACL_DENY for number in range(100)]
    [request] = scene.registry.resolved
    assert sorted(key.name for key in request.key) == sorted([NAME, "other"])
    assert scene.mailbox.commands == 50


async def test_a_batch_that_waits_for_registry_holds_no_other(scene: Scene) -> None:
    gate = asyncio.Event()

    async def slowly(request: reg.ResolveRequest) -> bytes:
        if request.key[0].name == "slowly":
            await gate.wait()
        return await always(resolution())(request)

    scene.registry.resolve = slowly
    await scene.stream.send(scene.batch(scene.forge.command(name="slowly")))
    assert (await scene.ask(scene.forge.command())).codes == [GOOD]
    gate.set()
    assert (await scene.stream.answer(1)).codes == [GOOD]


async def test_what_the_mailbox_did_not_answer_in_time_is_an_unknown_outcome(scene: Scene) -> None:
    scene.mailbox.script = scene.mailbox.hold
    await scene.stream.send(scene.batch(scene.forge.command()))
    await eventually(lambda: scene.mailbox.held)
    scene.bench.clock.advance(seconds=5)
    assert (await scene.stream.answer(1)).codes == [Verdict.OUTCOME_UNKNOWN]


async def test_a_frame_that_is_not_a_batch_is_refused_and_the_stream_goes_on(scene: Scene) -> None:
    await scene.stream.send(b"\xff" * 50)
    assert (await scene.stream.answer(0)).frame_refusal is Verdict.MALFORMED
    assert (await scene.ask(scene.forge.command())).codes == [GOOD]


async def test_a_case_under_way_is_still_answered_when_the_peers_certificate_is_revoked(
    scene: Scene,
) -> None:
    gate = asyncio.Event()

    async def slowly(request: reg.ResolveRequest) -> bytes:
        await gate.wait()
        return await always(resolution())(request)

    scene.registry.resolve = slowly
    await scene.stream.send(scene.batch(scene.forge.command()))
    await eventually(lambda: scene.registry.resolved)
    certificate = scene.bench.authority.folder / "mesh--fast" / "cert.pem"
    scene.signer.revoked.append(serial_of(x509.load_pem_x509_certificate(certificate.read_bytes())))
    before = scene.signer.asked_denylist
    await eventually(lambda: scene.signer.asked_denylist > before + 1)
    await scene.stream.send(scene.batch(scene.forge.command()))
    gate.set()
    assert (await scene.stream.answer(1)).codes == [GOOD]
    with pytest.raises(Unauthenticated) as refused:
        await scene.stream.answer(2)
    assert refused.value.reason == "certificate-revoked"
