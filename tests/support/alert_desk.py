"""Alerting over a real store, with channels as Registry would tell them, real receivers, and a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from services.relay.alerts.alerting import Alerting
from services.relay.alerts.channels import AlertChannels
from services.relay.alerts.emails import AlertEmails, SmtpServer
from services.relay.alerts.webhooks import AlertWebhooks
from snavio.clock import ManualClock
from snavio.domain.alerts import Occurrence
from snavio.domain.directory import AlertChannel, ChannelKind
from snavio.egress.policy import EgressPolicy
from snavio.egress.requests import Egress, EgressLimits
from snavio.ports.alert_store import AlertMessage, AlertStore
from snavio.replication.directory_wire import value_to_wire
from snavio.v1.registry_pb2 import Change
from snavio.wiring import open_alerts
from tests.support.telemetry import NOW

PATIENCE_S = 60.0
INVALID = "snavio.command.invalid"


@dataclass
class AlertDesk:
    """The parts, open."""

    alerting: Alerting
    store: AlertStore
    channels: AlertChannels
    webhooks: AlertWebhooks
    clock: ManualClock
    folder: Path

    def channel(
        self,
        kind: ChannelKind,
        address: str = "",
        *,
        tenant: str = "acme",
        name: str = "",
        events: Sequence[str] = (),
    ) -> None:
        value = AlertChannel(tenant, name or kind.name.lower(), kind, address, tuple(events))
        self.channels.take(Change(version=1, alert_channel=value_to_wire(value)))

    async def note(
        self, count: int = 1, *, tenant: str = "acme", event: str = INVALID, reason: str = "malformed"
    ) -> None:
        now = self.clock.unix_ns()
        await self.alerting.note(
            [Occurrence(tenant, event, reason, count, now, {"source": f"{tenant}/shop"})]
        )

    async def turn(self, *, seconds: float = 0.0) -> None:
        """Move the clock, then one turn with all of its deliveries."""
        self.clock.advance(seconds=seconds)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self.alerting.turn()
                while self.alerting.gauges()["under_way"]:
                    await asyncio.sleep(0.01)
                due = await self.store.due(self.clock.unix_ns(), limit=1, per_channel=1)
                if not due and not await self.store.waiting(limit=1):
                    return

    async def messages(self, tenant: str | None = "acme", *, unrouted: bool = False) -> list[AlertMessage]:
        """Oldest first."""
        found = await self.store.listed(tenant=tenant, limit=500, unrouted=unrouted)
        return [message for message, _ in reversed(found)]


@asynccontextmanager
async def alert_desk(
    folder: Path,
    *,
    ca_file: Path | None = None,
    smtp: SmtpServer | None = None,
    clock: ManualClock | None = None,
    operators: dict[str, AlertChannel] | None = None,
    limits: EgressLimits | None = None,
    messages: int = 20_000,
    messages_per_tenant: int = 1_000,
    known: bool = True,
) -> AsyncIterator[AlertDesk]:
    clock = clock or ManualClock(NOW)
    store = await open_alerts(
        folder / "alerts.db", messages=messages, messages_per_tenant=messages_per_tenant
    )
    channels = AlertChannels(None, operators=operators or {})  # type: ignore[arg-type]
    channels._known = known
    egress = Egress(
        EgressPolicy(allow=["127.0.0.0/8"]),
        ca_file=ca_file,
        lookup=lambda _host: ["127.0.0.1"],
        limits=limits,
    )
    emails = AlertEmails(smtp or SmtpServer(), clock=clock)
    webhooks = AlertWebhooks(egress, store, clock=clock)
    alerting = Alerting(
        store=store, channels=channels, webhooks=webhooks, emails=emails, clock=clock, jitter=lambda: 0.5
    )
    try:
        yield AlertDesk(alerting, store, channels, webhooks, clock, folder)
    finally:
        await emails.stop()
        await egress.close()
        await store.close()


@dataclass
class MailServer:
    """A real SMTP server, as good or as bad as its mode: `good`, `hang`, `refuse`, `drop` (takes it, then nothing)."""

    port: int = 0
    mode: str = "good"
    mails: list[bytes] = field(default_factory=list)
    connections: int = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, mode: str = "good") -> AsyncIterator[MailServer]:
        self = cls(mode=mode)
        over = asyncio.Event()
        tasks: set[asyncio.Task[Any]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            self.connections += 1
            try:
                if self.mode == "hang":
                    await over.wait()
                    return
                writer.write(b"220 test\r\n")
                while line := (await reader.readline()).upper():
                    if line.startswith(b"DATA"):
                        writer.write(b"354 go\r\n")
                        self.mails.append(await reader.readuntil(b"\r\n.\r\n"))
                        if self.mode == "drop":
                            return
                        writer.write(b"250 taken\r\n")
                    elif line.startswith(b"RCPT") and self.mode == "refuse":
                        writer.write(b"550 no such mailbox\r\n")
                    elif line.startswith(b"QUIT"):
                        writer.write(b"221 bye\r\n")
                        return
                    else:
                        writer.write(b"250 fine\r\n")
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            over.set()
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def settings(self, **more: Any) -> SmtpServer:
        return SmtpServer(
            host="127.0.0.1", port=self.port, security="none", sender="snavio@mesh.example", **more
        )


def data_of(body: bytes) -> dict[str, Any]:
    """The alert in a webhook's body."""
    told: dict[str, Any] = orjson.loads(body)["data"]
    return told
