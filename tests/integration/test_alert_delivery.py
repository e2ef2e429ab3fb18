"""Alerts reach their channels: real HTTPS receivers and SMTP servers, as good or as bad as they come."""

from __future__ import annotations

import asyncio
import email
import json
import re
import time
from dataclasses import replace
from email.policy import default
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from services.relay.alerts.alerting import DELIVERIES
from services.relay.alerts.watch import OperatorWatch
from snavio.clock import ManualClock
from snavio.domain.alerts import OPERATORS, UNROUTED
from snavio.domain.directory import AlertChannel, ChannelKind
from snavio.egress.requests import EgressLimits
from snavio.errors import Unavailable
from snavio.ports.alert_store import AlertState, Mute
from snavio.v1.introspection_pb2 import Gauge, ShareUse, StatusResponse
from tests.support.alert_desk import INVALID, MailServer, alert_desk, data_of
from tests.support.pki import Authority
from tests.support.webhook_server import Received, WebAuthority, WebhookServer, answering

SHORT = EgressLimits(connect_s=2.0, first_byte_s=0.3, total_s=3.0)
FAILING = answering(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> WebAuthority:
    return WebAuthority.make(tmp_path_factory.mktemp("web"))


def verified(request: Received, secret: str) -> dict[str, object]:
    """The body of a request, verified as a receiver verifies it, at the test's own time."""
    stamp, at = request.headers["webhook-timestamp"], int(request.headers["webhook-timestamp"])
    # The library judges by the wall clock; the test's clock is its own, so the same is signed for now.
    from datetime import UTC, datetime

    hook, now = Webhook(secret), int(time.time())
    signed = hook.sign(
        request.headers["webhook-id"],
        datetime.fromtimestamp(at, UTC).replace(tzinfo=None),
        request.body.decode(),
    )
    assert stamp == str(at)
    if signed not in request.headers["webhook-signature"].split(" "):
        raise WebhookVerificationError("No matching signature found")
    fresh = hook.sign(
        request.headers["webhook-id"],
        datetime.fromtimestamp(now, UTC).replace(tzinfo=None),
        request.body.decode(),
    )
    headers = {**request.headers, "webhook-timestamp": str(now), "webhook-signature": fresh}
    told: dict[str, object] = hook.verify(request.body, headers)
    return told


async def test_a_webhook_gets_a_signed_alert_that_its_receiver_can_verify(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with WebhookServer.running(web) as server, alert_desk(tmp_path, ca_file=web.ca_file) as desk:
        desk.channel(ChannelKind.WEBHOOK, server.url)
        secret, until = await desk.webhooks.rotate("acme", "webhook")
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret) and until == 0
        await desk.note(3)
        await desk.turn()
        (request,) = server.received
        told = verified(request, secret)
        alert = data_of(request.body)
        assert told["type"] == INVALID and told["data"] == alert
        assert request.headers["webhook-id"] == alert["alert_id"]
        assert (alert["tenant"], alert["reason"], alert["count"], alert["critical"]) == (
            "acme",
            "malformed",
            3,
            True,
        )
        assert alert["sample"] == {"source": "acme/shop"}
        (message,) = await desk.messages()
        assert message.state is AlertState.DELIVERED


async def test_a_rotated_secret_counts_beside_the_one_before_for_a_day(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with WebhookServer.running(web) as server, alert_desk(tmp_path, ca_file=web.ca_file) as desk:
        desk.channel(ChannelKind.WEBHOOK, server.url)
        first, _ = await desk.webhooks.rotate("acme", "webhook")
        second, until = await desk.webhooks.rotate("acme", "webhook")
        assert first != second and until == desk.clock.unix_ns() + 24 * 3600 * 10**9
        await desk.note()
        await desk.turn()
        for secret in (first, second):
            verified(server.received[-1], secret)
        desk.clock.advance(seconds=25 * 3600)
        await desk.note()
        await desk.turn()
        verified(server.received[-1], second)
        with pytest.raises(WebhookVerificationError):
            verified(server.received[-1], first)
        assert second.removeprefix("whsec_").encode() not in (tmp_path / "alerts.db").read_bytes()


async def test_a_receiver_that_fails_for_an_hour_gets_the_alert_once_it_is_back(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with (
        WebhookServer.running(web, answer=FAILING) as server,
        alert_desk(tmp_path, ca_file=web.ca_file) as desk,
    ):
        desk.channel(ChannelKind.WEBHOOK, server.url)
        await desk.note(5)
        for _ in range(60):
            await desk.turn(seconds=60)
        attempts = len(server.received)
        assert 8 <= attempts <= 16, "back-off: a few attempts, not one a second"
        (message,) = await desk.messages()
        assert message.state is AlertState.SENDING
        server.answer = answering(b"HTTP/1.1 204 Ok\r\n\r\n")
        await desk.turn(seconds=3600)
        (message,) = await desk.messages()
        assert message.state is AlertState.DELIVERED
        assert {request.headers["webhook-id"] for request in server.received} == {message.alert_id}


async def test_what_no_channel_took_for_a_day_is_the_operators(web: WebAuthority, tmp_path: Path) -> None:
    async with (
        WebhookServer.running(web, answer=FAILING) as server,
        alert_desk(tmp_path, ca_file=web.ca_file) as desk,
    ):
        desk.channel(ChannelKind.WEBHOOK, server.url)
        await desk.note()
        for _ in range(26):
            await desk.turn(seconds=3600)
        (message,) = await desk.messages()
        assert (message.state, message.why) == (AlertState.UNROUTED, "http-500")
        (own,) = await desk.messages(OPERATORS)
        assert (own.event, own.reason, own.sample["alert_id"]) == (UNROUTED, INVALID, message.alert_id)
        assert own.state is AlertState.UNROUTED, "nobody configured a channel for operators"
        assert (await desk.store.counts()).unrouted == 2
        assert await desk.store.ack([own.alert_id], tenant="acme", by="eve", now=1) == 0
        assert await desk.store.ack([own.alert_id], tenant=None, by="ada", now=1) == 1
        assert (await desk.store.counts()).unrouted == 1


async def test_a_critical_alert_of_a_tenant_without_channels_is_flagged_to_operators(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with WebhookServer.running(web) as server:
        hook = AlertChannel("operators", "operator-webhook", ChannelKind.WEBHOOK, server.url)
        async with alert_desk(tmp_path, ca_file=web.ca_file, operators={hook.name: hook}) as desk:
            await desk.note()
            await desk.turn()
            (alert,) = [data_of(request.body) for request in server.received]
            assert (alert["event"], alert["sample"]["tenant"], alert["tenant"]) == (UNROUTED, "acme", None)
            assert desk.alerting.counters()[f'alerts_unrouted_total{{event="{INVALID}"}}'] == 1
            (message,) = await desk.messages(unrouted=True)
            assert message.why == "no-channel"


async def test_what_is_not_critical_is_muted_and_what_is_critical_cannot_be(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        desk.channel(ChannelKind.DASHBOARD, events=["snavio.fairness.warm-path-ban"])
        end = desk.clock.unix_ns() + 3600 * 10**9
        for event in (INVALID, "snavio.fairness.warm-path-ban"):
            await desk.store.mute(Mute("acme", event, end, "ada"))
        await desk.note(event="snavio.fairness.warm-path-ban")
        await desk.note(event="snavio.fairness.abuse_detected")
        await desk.note()
        await desk.turn()
        states = {message.event: message.state for message in await desk.messages()}
        assert states == {
            "snavio.fairness.warm-path-ban": AlertState.MUTED,
            "snavio.fairness.abuse_detected": AlertState.MUTED,
            INVALID: AlertState.DELIVERED,
        }
        desk.clock.advance(seconds=7200)
        await desk.note(event="snavio.fairness.warm-path-ban")
        await desk.turn()
        assert (await desk.messages())[-1].state is AlertState.DELIVERED


async def test_alerts_wait_while_nobody_can_say_which_channels_a_tenant_has(tmp_path: Path) -> None:
    async with alert_desk(tmp_path, known=False) as desk:
        await desk.note()
        await desk.alerting.turn()
        (message,) = await desk.messages()
        assert message.state is AlertState.WAITING
        desk.channels._known = True
        desk.channel(ChannelKind.DASHBOARD)
        await desk.turn()
        assert (await desk.messages())[0].state is AlertState.DELIVERED


async def test_mail_has_a_summary_as_its_subject_and_the_alert_as_its_body(tmp_path: Path) -> None:
    async with MailServer.running() as server, alert_desk(tmp_path, smtp=server.settings()) as desk:
        desk.channel(ChannelKind.EMAIL, "ops@acme.example")
        await desk.note(2)
        await desk.turn()
        (raw,) = server.mails
        mail = email.message_from_bytes(raw.removesuffix(b".\r\n"), policy=default)
        (message,) = await desk.messages()
        assert mail["Subject"] == "[Snavio] acme: commands were refused as invalid (malformed), 2 times"
        assert mail["To"] == "ops@acme.example" and mail["Message-ID"] == f"<{message.alert_id}@mesh.example>"
        assert json.loads(mail.get_content())["count"] == 2
        assert message.state is AlertState.DELIVERED


@pytest.mark.parametrize(
    ("mode", "reason"), [("hang", "smtp-timeout"), ("refuse", "smtp-refused"), ("drop", "smtp-failed")]
)
async def test_a_mail_server_that_does_not_take_it_is_tried_again_with_the_same_message_id(
    tmp_path: Path, mode: str, reason: str
) -> None:
    async with MailServer.running(mode) as server:
        smtp = server.settings(step_s=0.5, total_s=1.0)
        async with alert_desk(tmp_path, smtp=smtp) as desk:
            desk.channel(ChannelKind.EMAIL, "ops@acme.example")
            await desk.note()
            await desk.turn()
            ((_, (progress,)),) = await desk.store.listed(tenant="acme", limit=5)
            assert progress.state == "pending" and progress.attempts == 1
            assert progress.error.startswith((reason, "smtp-failed"))
            server.mode = "good"
            await desk.turn(seconds=60)
            assert (await desk.messages())[0].state is AlertState.DELIVERED
            ids = {re.search(rb"Message-ID: (.*)\r\n", mail)[1] for mail in server.mails}  # type: ignore[index]
            assert len(ids) == 1


async def test_a_mail_server_that_trickles_is_given_up_and_holds_up_nobody(
    tmp_path: Path, web: WebAuthority
) -> None:
    async def trickle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"220-not yet\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server, WebhookServer.running(web) as receiver:
        from services.relay.alerts.emails import SmtpServer

        port = server.sockets[0].getsockname()[1]
        smtp = SmtpServer("127.0.0.1", port, "none", sender="a@b.example", step_s=5.0, total_s=0.5)
        async with alert_desk(tmp_path, smtp=smtp, ca_file=web.ca_file) as desk:
            desk.channel(ChannelKind.EMAIL, "ops@acme.example")
            desk.channel(ChannelKind.WEBHOOK, receiver.url, tenant="globex")
            await desk.note()
            await desk.note(tenant="globex")
            await desk.turn()
            assert len(receiver.received) == 1
            ((_, (progress,)),) = await desk.store.listed(tenant="acme", limit=5)
            assert progress.error.startswith("smtp-timeout")


async def test_without_a_mail_server_the_operators_are_told_at_once(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        desk.channel(ChannelKind.EMAIL, "ops@acme.example")
        await desk.note()
        await desk.turn()
        (message,) = await desk.messages()
        assert (message.state, message.why) == (AlertState.UNROUTED, "smtp-not-configured")
        assert len(await desk.messages(OPERATORS)) == 1


async def test_one_tenants_dead_receivers_hold_up_no_other_tenant(web: WebAuthority, tmp_path: Path) -> None:
    async def silent(_request: Received, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with (
        WebhookServer.running(web, answer=silent) as dead,
        WebhookServer.running(web) as good,
        alert_desk(tmp_path, ca_file=web.ca_file) as desk,
    ):
        for number in range(20):
            desk.channel(ChannelKind.WEBHOOK, dead.url, name=f"dead-{number}")
        desk.channel(ChannelKind.WEBHOOK, good.url, tenant="globex")
        for number in range(20):
            await desk.note(reason=f"reason-{number}")
        await desk.note(tenant="globex")
        await desk.alerting.turn()
        assert desk.alerting.shares.held("acme") == DELIVERIES // 4
        async with asyncio.timeout(30):
            while not good.received:
                await asyncio.sleep(0.01)
        assert desk.alerting.shares.held("acme") == DELIVERIES // 4


async def test_a_full_store_keeps_the_count_and_tells_it_when_there_is_room(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with (
        WebhookServer.running(web, answer=FAILING) as server,
        alert_desk(tmp_path, ca_file=web.ca_file, messages=30, messages_per_tenant=10) as desk,
    ):
        desk.channel(ChannelKind.WEBHOOK, server.url)
        for number in range(15):
            await desk.note(7, reason=f"reason-{number}")
            await desk.turn()
        assert len(await desk.messages()) == 10
        counts = await desk.store.counts()
        assert counts.full or counts.groups == 15
        await desk.note(tenant="globex")
        assert len(await desk.messages("globex")) == 1, "the bound of one is not the bound of all"
        server.answer = answering(b"HTTP/1.1 204 Ok\r\n\r\n")
        delivered: dict[str, int] = {}
        for _ in range(4):
            await desk.turn(seconds=3600)
            delivered |= {message.alert_id: message.count for message in await desk.messages()}
        first = {data_of(each.body)["alert_id"]: data_of(each.body)["count"] for each in server.received}
        assert sum(first.values()) == 15 * 7
        assert {data_of(each.body)["reason"] for each in server.received} == {
            f"reason-{number}" for number in range(15)
        }


async def test_a_channel_that_is_gone_is_no_reason_to_forget_the_alert(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with (
        WebhookServer.running(web, answer=FAILING) as server,
        alert_desk(tmp_path, ca_file=web.ca_file) as desk,
    ):
        desk.channel(ChannelKind.WEBHOOK, server.url)
        await desk.note()
        await desk.turn()
        desk.channels._channels.clear()
        await desk.turn(seconds=60)
        (message,) = await desk.messages()
        assert (message.state, message.why) == (AlertState.UNROUTED, "channel-gone")


async def test_a_test_goes_the_way_of_alerts_and_says_what_is_wrong(
    web: WebAuthority, tmp_path: Path
) -> None:
    async with WebhookServer.running(web) as server, alert_desk(tmp_path, ca_file=web.ca_file) as desk:
        desk.channel(ChannelKind.WEBHOOK, server.url)
        await desk.alerting.test("acme", "webhook")
        assert data_of(server.received[0].body)["event"] == "snavio.alert.test"
        server.answer = FAILING
        with pytest.raises(Unavailable) as refused:
            await desk.alerting.test("acme", "webhook")
        assert refused.value.reason == "http-500"
        assert await desk.messages() == []


class Service:
    """A service that answers Status, or does not."""

    def __init__(self) -> None:
        self.away = False
        self.used = 0
        self.expires_in_s = 3000.0

    async def call(
        self, _method: str, _request: object, _kind: object, *, timeout_s: float
    ) -> StatusResponse:
        if self.away:
            raise Unavailable("gone")
        return StatusResponse(
            share=[ShareUse(bound="nonces", total=100, used=self.used)],
            gauge=[
                Gauge(name="certificate.expires_in_s", value=self.expires_in_s),
                Gauge(name="certificate.lifetime_s", value=3600.0),
            ],
        )


async def test_operators_hear_of_a_service_that_is_away_and_of_bounds_that_are_near(
    tmp_path: Path,
) -> None:
    clock, signer, full = ManualClock(time.time_ns()), Service(), {"relay.outbox": 0.1}
    files = Authority(tmp_path / "pki").mesh("relay")
    async with alert_desk(tmp_path, clock=clock) as desk:
        watch = OperatorWatch(
            services={"signer": signer},  # type: ignore[dict-item]
            fullness=lambda: full,
            certificate=files.certificate,
            ca=files.ca,
            note=desk.alerting.note,
            clock=clock,
        )

        async def told() -> set[tuple[str, str]]:
            await watch.look()
            await desk.turn()
            return {(message.event, message.reason) for message in await desk.messages(OPERATORS)}

        assert await told() == set()
        signer.away = True
        assert await told() == set(), "a restart takes less than a minute"
        clock.advance(seconds=61)
        assert await told() == {("snavio.service.away", "signer")}
        signer.away, signer.used, full["relay.outbox"] = False, 90, 0.9
        expected = {
            ("snavio.service.away", "signer"),
            ("snavio.store.near-bound", "signer.nonces"),
            ("snavio.store.near-bound", "relay.outbox"),
        }
        assert await told() == expected
        signer.expires_in_s = 700.0
        assert await told() == expected | {("snavio.certificate.ending", "signer")}
        before = len(await desk.messages(OPERATORS))
        for _ in range(5):
            clock.advance(seconds=15)
            await told()
        assert len(await desk.messages(OPERATORS)) == before, "a condition that lasts is told once an hour"
        clock.advance(seconds=3300)
        assert ("snavio.certificate.ending", "relay") in await told()


async def test_a_reason_with_line_ends_adds_no_header_to_a_mail(tmp_path: Path) -> None:
    async with MailServer.running() as server, alert_desk(tmp_path, smtp=server.settings()) as desk:
        desk.channel(ChannelKind.EMAIL, "ops@acme.example")
        await desk.note(reason="x\r\nBcc: evil@evil.example\r\n\r\nhello")
        await desk.turn()
        (raw,) = server.mails
        mail = email.message_from_bytes(raw.removesuffix(b".\r\n"), policy=default)
        assert mail["Bcc"] is None and "Bcc: evil@evil.example hello" in mail["Subject"]


async def test_what_cannot_be_made_a_mail_is_tried_again_later_and_not_at_once(tmp_path: Path) -> None:
    async with MailServer.running() as server:
        smtp = replace(server.settings(), sender="alerts@mesh.example\n")
        async with alert_desk(tmp_path, smtp=smtp) as desk:
            desk.channel(ChannelKind.EMAIL, "ops@acme.example")
            await desk.note()
            await desk.turn()
            ((_, (progress,)),) = await desk.store.listed(tenant="acme", limit=5)
            assert (progress.state, progress.attempts) == ("pending", 1)
            assert progress.error.startswith("internal")


async def test_a_secret_that_was_shown_is_the_one_that_signs(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        for number in range(20):
            (shown, _), _ = await asyncio.gather(
                desk.webhooks.rotate("acme", f"hook-{number}"),
                desk.webhooks._secret("acme", f"hook-{number}"),
            )
            kept = await desk.store.secret("acme", f"hook-{number}")
            assert kept is not None and Webhook(shown)._whsecret == kept.current
