"""Rules of topics and endpoints in the directory: whose they are, and the mailbox that follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from services.mailbox.app import MailboxApp
from services.mailbox.settings import MailboxSettings
from snavio.domain.directory import Endpoint, EndpointMode, TopicRule, Value, WhenFull
from snavio.errors import BadRequest, NotAllowed
from snavio.replication.directory_wire import entry_from_wire, entry_to_wire
from snavio.v1 import registry_pb2 as wire
from tests.support.acme import apply, settle
from tests.support.control import ADMIN, Control

WITH_REGISTRY = True
OWN = "acme/own/mail"
RULE = TopicRule("acme", OWN, capacity=100, when_full=WhenFull.BURY_OLDEST, delivered_s=0)
HOOK = Endpoint(
    "acme",
    "/webhooks/github",
    EndpointMode.DELIVER,
    ("ci.internal", "[::1]:8443"),
    application="ci",
    endpoint_name="github",
    publish=True,
    topics=("acme/own/edge.github.abc",),
    fingerprint="sha256:00",
)


async def listed(control: Control, kind: str, by: str) -> list[Value]:
    answer = await control.ask(
        by, "ListEntries", wire.ListEntriesRequest(kind=kind), wire.ListEntriesResponse
    )
    return [entry_from_wire(one.entry, "entry") for one in answer.entry]


async def test_a_tenant_writes_lists_and_deletes_its_own_and_nobody_elses(control: Control) -> None:
    await settle(control)
    for value, kind in ((RULE, "topic_rule"), (HOOK, "endpoint")):
        assert (await apply(control, value, by="acme")).changed
        assert not (await apply(control, value, by="acme")).changed
        assert await listed(control, kind, "acme") == [value]
        assert await listed(control, kind, "rival") == []
        assert await listed(control, kind, ADMIN) == [value]
        with pytest.raises(NotAllowed):
            await apply(control, value, by="rival")
        request = wire.ApplyRequest(write=[wire.Write(entry=entry_to_wire(value), delete=True)])
        with pytest.raises(NotAllowed):
            await control.ask("rival", "Apply", request, wire.ApplyResponse)
        assert (await control.ask("acme", "Apply", request, wire.ApplyResponse)).changed
        assert await listed(control, kind, "acme") == []
        told = await control.ask(
            "acme", "History", wire.HistoryRequest(kind=kind, key=value.key), wire.HistoryResponse
        )
        assert [change.deleted for change in told.change] == [False, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"route": "webhooks"},
        {"targets": ("https://ci.internal/build",)},
        {"targets": ("user@ci.internal",)},
        {"targets": ("h",) * 65},
        {"application": "ci", "endpoint_name": ""},
        {"topics": ("rival/own/x",)},
        {"fingerprint": "two words"},
    ],
)
def test_an_endpoint_says_nothing_that_could_be_a_secret(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"tenant": "acme", "route": "/x", "mode": EndpointMode.DELIVER}
    with pytest.raises(BadRequest):
        Endpoint(**{**right, **wrong})  # type: ignore[arg-type]


@asynccontextmanager
async def mailbox(control: Control) -> AsyncIterator[MailboxApp]:
    mesh = control.mesh.model_copy(update={"mailbox": "127.0.0.1:0"})
    app = MailboxApp(mesh, MailboxSettings(), control.clock)
    await app.start()
    try:
        yield app
    finally:
        await app.drain()


async def holds(app: MailboxApp, fits: Callable[[MailboxApp], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not fits(app):
            await asyncio.sleep(0.05)


async def test_the_mailbox_follows_the_rules_and_starts_with_them_while_registry_is_away(
    control: Control,
) -> None:
    await settle(control)
    await apply(control, RULE, by="acme")

    def capacity(app: MailboxApp) -> int:
        return app.parts.delivery.topics.capacity(OWN)

    async with mailbox(control) as app:
        await holds(app, lambda app: capacity(app) == 100)
        assert app.parts.delivery.policies.of(OWN).when_full is WhenFull.BURY_OLDEST
        await apply(control, TopicRule("acme", OWN, capacity=200), by="acme")
        await holds(app, lambda app: capacity(app) == 200)
        assert app.parts.delivery.policies.of(OWN).when_full is WhenFull.REFUSE
    await control.stop_registry()
    async with mailbox(control) as app:
        assert capacity(app) == 200, "as it was read last"
        await control.start_registry()
        request = wire.ApplyRequest(write=[wire.Write(entry=entry_to_wire(RULE), delete=True)])
        await control.ask("acme", "Apply", request, wire.ApplyResponse)
        await holds(app, lambda app: capacity(app) == 1_000_000)
