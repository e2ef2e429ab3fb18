"""Composes one edge process.

Never listens before its plan is in force: a request that came earlier would be judged by nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from services.gateway.edge.access_log import AccessLog
from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from services.gateway.edge.bearer import permitted, shown_token
from services.gateway.edge.buckets import RouteBuckets
from services.gateway.edge.commanding import Commanding
from services.gateway.edge.control import AdminApp, ControlApp, ControlServer, EdgeHealth
from services.gateway.edge.edge_metrics import EdgeMetrics, MetricsApp
from services.gateway.edge.forwarding import Forwarding
from services.gateway.edge.ingress import Ingress
from services.gateway.edge.listeners import EdgeListener, ListenerSpec
from services.gateway.edge.posting import Posting
from services.gateway.edge.recent_requests import RecentRequests
from services.gateway.edge.registering import Registering
from services.gateway.edge.reloading import Reloading
from services.gateway.edge.running_plan import RunningPlan
from services.gateway.edge.secrets import REFRESH_SECONDS, SecretKeeper
from services.gateway.edge.settings import EDGE_SERVICE, EdgeSettings
from services.gateway.pull.app import PullApp, PullRecord
from services.gateway.pull.endpoints import PullTable
from services.gateway.pull.lease_key import lease_key
from services.gateway.pull.leases import PullLeases
from services.gateway.pull.metrics import PullMetrics
from snavio.clock import Clock
from snavio.edge.language import EdgePart
from snavio.edge.lease_ids import LeaseIds
from snavio.edge.plan import EdgePlan, RouteChannel, RouteMode
from snavio.edge.references import SecretReference
from snavio.errors import Unavailable
from snavio.host.parts import Parts
from snavio.host.periodic import Periodic
from snavio.rpc.capability import CapabilityScope
from snavio.sdk.certificate import ServiceCertificate
from snavio.sdk.mailbox_channel import mailbox_channel
from snavio.sdk.producer import Producer
from snavio.wiring import open_secret_source

WATCH_SECONDS: Final = 1.0
REGISTER_SECONDS: Final = 10.0
REGISTER_AGAIN_SECONDS: Final = 5.0
_log = structlog.get_logger(__name__)


class EdgeApp:
    """One edge process: `start`, then `drain`."""

    def __init__(self, settings: EdgeSettings, clock: Clock, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._clock = clock
        self._parts = Parts()
        self._metrics = EdgeMetrics()
        self._recent = RecentRequests()
        self._log: AccessLog | None = None
        self._listeners: list[EdgeListener] = []
        self._plan: RunningPlan | None = None
        self._hangups = 0
        certificates = settings.service_folder(EDGE_SERVICE)
        self._certificate = ServiceCertificate(
            certificates,
            signer=settings.signer,
            clock=clock,
            trust_domain=settings.trust_domain,
            source=f"{settings.tenant}/{EDGE_SERVICE}",
            principal=settings.principal,
        )
        self._mailbox = mailbox_channel(
            settings.mailbox,
            CapabilityScope(f"{settings.tenant}/own/*", ("send", "recv", "ack", "nack", "extend")),
            certificates=certificates,
            signer=settings.signer,
            capability=None,
            trust_domain=settings.trust_domain,
        )
        self._posting = Posting(self._mailbox)
        self._commanding = Commanding(self._producer)
        self._forwarding = Forwarding()
        self._registering = Registering(
            settings.registry, principal=settings.principal, trust_domain=settings.trust_domain
        )
        self._unregistered: EdgePlan | None = None
        self._pull: PullApp | None = None
        self._pull_metrics = PullMetrics()
        self._keeper = SecretKeeper(open_secret_source(environment), clock=clock)
        self._ingress = Ingress(
            posting=self._posting,
            commanding=self._commanding,
            forwarding=self._forwarding,
            clock=clock,
            finished=self._finished,
        )
        self._reloading = Reloading(
            settings.config,
            keeper=self._keeper,
            buckets=RouteBuckets(clock),
            register=self._register,
            swap=self._swap,
            environment=environment,
            tenant=settings.tenant,
            clock=clock,
        )
        self._health = EdgeHealth(self._reloading, self._details)

    async def start(self) -> int:
        """Serve; returns the port of ingress, or of the first listener there is."""
        loop, parts, settings = asyncio.get_running_loop(), self._parts, self._settings
        reloads = Periodic("reload", self._reloading.reload, every_s=None)
        loop.add_signal_handler(signal.SIGHUP, self._hangup, reloads)
        try:
            parts.at_stop("mailbox channel", self._mailbox.close)
            parts.at_stop("certificate", self._certificate.stop)
            await self._certificate.start(within_s=settings.start_within_s)
            parts.at_stop("posting", self._posting.close)
            parts.at_stop("commanding", self._commanding.close)
            parts.at_stop("forwarding", self._forwarding.close)
            parts.at_stop("registering", self._registering.close)
            leases = PullLeases(self._mailbox, LeaseIds(self._lease_key()), self._clock)
            parts.at_stop("leases", leases.close)
            self._pull = PullApp(leases, authorise=self._authorise, clock=self._clock, finished=self._pulled)
            running = await self._reloading.begin()
            control = ControlServer(
                ControlApp(
                    ingress=self._ingress,
                    recent=self._recent,
                    health=self._health,
                    reloading=self._reloading,
                    clock=self._clock,
                ),
                settings.control,
            )
            await control.start()
            parts.at_stop("control", control.stop)
            self._log = AccessLog(running.plan.observability.access_log)
            self._log.start()
            parts.at_stop("access log", self._log.stop)
            refresh = Periodic("secrets", self._keeper.refresh, every_s=REFRESH_SECONDS)
            refresh.start()
            parts.at_stop("secrets", refresh.stop)
            await self._listen(running.plan)
            again = Periodic("rules of topics", self._register_again, every_s=REGISTER_AGAIN_SECONDS)
            again.start()
            parts.at_stop("rules of topics", again.stop)
            # From here on a hang-up reloads; one that came earlier had no file to read again.
            reloads.start(at_once=self._hangups > 0)
            parts.at_stop("reloads", reloads.stop)
            if settings.watch:
                watch = Periodic("watch", self._reloading.look, every_s=WATCH_SECONDS)
                watch.start()
                parts.at_stop("watch", watch.stop)
        except BaseException:
            await parts.stop()
            raise
        return self._listeners[0].port if self._listeners else 0

    async def drain(self) -> None:
        """Accept nothing more, answer what is under way, and end."""
        await self._parts.stop()

    # -- composition -----------------------------------------------------------------------------------

    async def _listen(self, plan: EdgePlan) -> None:
        for spec in self._specs(plan):
            listener = EdgeListener(spec, turned_away=self._turner(spec.name))
            await listener.start()
            self._listeners.append(listener)
            self._parts.at_stop(f"listener {spec.name}", listener.stop)
        self._parts.at_stop("waiting workers", self._release_workers)

    def _specs(self, plan: EdgePlan) -> list[ListenerSpec]:
        """The sockets of a plan; listeners that write one address share its port."""
        wanted: list[tuple[str, Any, Any, str, Any]] = []
        if any(each.channel is RouteChannel.INBOUND for each in plan.routes):
            wanted.append(("ingress", plan.ingress.listen, plan.ingress.tls, "", self._ingress))
        if plan.pull_api is not None:
            pull = plan.pull_api
            wanted.append(("pull_api", pull.listen, pull.tls, pull.prefix, self._pull))
        if plan.admin_api is not None:
            admin = plan.admin_api
            app = AdminApp(self._health, admin.prefix, lambda: self._plan)
            wanted.append(("admin_api", admin.listen, admin.tls, admin.prefix, app))
        metrics = plan.observability.metrics
        if metrics is not None:
            wanted.append(
                ("metrics", metrics.listen, None, "", MetricsApp(self._metrics, self._gauges, metrics.prefix))
            )
        found: dict[str, ListenerSpec] = {}
        for name, address, tls, prefix, app in wanted:
            spec = found.get(address.text)
            if spec is None:
                found[address.text] = ListenerSpec(name, address, tls, {prefix: app})
            else:
                found[address.text] = ListenerSpec(
                    f"{spec.name}+{name}", address, tls, {**spec.apps, prefix: app}
                )
        # Alone on its port, a prefix takes whatever comes; its application knows its paths.
        return [
            ListenerSpec(each.name, each.address, each.tls, {"": next(iter(each.apps.values()))})
            if len(each.apps) == 1
            else each
            for each in found.values()
        ]

    async def _register(self, plan: EdgePlan) -> None:
        """Have the mesh take over the rules of the plan's topics. Only a start goes on without, and does it later."""
        self._unregistered = None
        try:
            async with asyncio.timeout(REGISTER_SECONDS):
                await self._registering.apply(plan)
        except (Unavailable, TimeoutError) as error:
            if self._plan is not None:
                raise Unavailable(f"Registry did not take the rules of the topics: {error}") from None
            _log.warning("rules of topics not registered yet", detail=str(error))
            self._unregistered = plan

    async def _register_again(self) -> None:
        if (plan := self._unregistered) is not None and self._plan is not None:
            await self._registering.apply(plan)
            self._unregistered = None

    def _lease_key(self) -> bytes:
        self._settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lease_key(self._settings.state)

    def _authorise(
        self, headers: Sequence[tuple[bytes, bytes]], references: Sequence[SecretReference]
    ) -> bool:
        assert self._plan is not None
        return permitted(shown_token(headers), references, self._plan.secrets)

    async def _release_workers(self) -> None:
        assert self._pull is not None
        self._pull.stop()

    def _swap(self, running: RunningPlan) -> None:
        """One reference each: a request sees the plan before or the plan after."""
        self._forwarding.use(
            running.plan.egress, [each.auth.forward for each in running.plan.routes if each.auth.forward]
        )
        self._commanding.want({each.command.source for each in running.plan.routes if each.command})
        self._ingress.running = running
        self._plan = running
        if self._pull is not None:
            self._pull.table = PullTable.of(running.plan)
        for sentence in not_running(running.plan):
            _log.warning("not_running_yet", detail=sentence)

    def _producer(self, source: str) -> Producer:
        settings = self._settings
        return Producer(
            shield=settings.shield,
            signer=settings.signer,
            certificates=settings.service_folder(source),
            principal_certificates=settings.principal,
            source=f"{settings.tenant}/{source}",
            trust_domain=settings.trust_domain,
        )

    # -- what is told ----------------------------------------------------------------------------------

    def _finished(self, notes: RequestNotes, answer: EdgeAnswer, duration_ns: int) -> None:
        self._metrics.finished(notes, answer, duration_ns)
        self._recent.keep(notes, answer, duration_ns)
        if self._log is not None:
            self._log.add(notes, answer, duration_ns)

    def _pulled(self, record: PullRecord) -> None:
        self._pull_metrics.finished(record)
        if self._log is not None:
            notes = RequestNotes(record.request_id, "pull_api", record.received_unix_ns)
            notes.path, notes.route, notes.remote = record.path, record.route, record.remote
            self._log.add(
                notes, EdgeAnswer(record.status, record.code or record.operation), record.duration_ns
            )

    def _turner(self, listener: str) -> Any:
        def turned_away(status: int, reason: str, remote: str) -> None:
            self._metrics.turned_away(status, reason)
            if self._log is not None:
                self._log.turned_away(listener, status, reason, remote, self._clock.unix_ns())

        return turned_away

    def _hangup(self, reloads: Periodic) -> None:
        self._hangups += 1
        reloads.nudge()

    def _gauges(self) -> dict[str, float]:
        status = self._reloading.status
        found: dict[str, float] = {
            "hookaido_tracing_enabled": 0.0,
            "snavio_gateway_config_generation": float(status.generation),
            "snavio_gateway_secret_read_failures_total": float(self._keeper.failures),
            "snavio_gateway_access_log_dropped_total": float(self._log.dropped if self._log else 0),
        }
        found |= {f'snavio_gateway_reloads_total{{outcome="{name}"}}': n for name, n in status.counts.items()}
        found |= self._pull_metrics.read()
        found |= {f"snavio_gateway_posting_{name}": value for name, value in self._posting.gauges().items()}
        found["snavio_gateway_body_bytes"] = float(self._ingress.bodies.used)
        for each in self._listeners:
            found[f'snavio_gateway_connections{{listener="{each.spec.name}"}}'] = float(each.connections.used)
        return found

    def _details(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "pid": os.getpid(),
            "tenant": self._settings.tenant,
            "listeners": {
                each.spec.name: {"address": each.spec.address.text, "port": each.port}
                for each in self._listeners
            },
            "routes": [
                {
                    "path": each.route.path,
                    "channel": each.route.channel.value,
                    "mode": each.route.mode.value,
                    "topics": [topic.topic for topic in each.topics],
                    "targets": [topic.target for topic in each.topics],
                    "command": f"{each.route.command.target} {each.route.command.name}"
                    if each.route.command
                    else None,
                }
                for each in (plan.routes if plan else ())
            ],
            "ingress": {
                "accepted": self._metrics.accepted,
                "rejected": self._metrics.rejected,
                "enqueued": self._metrics.enqueued,
            },
            "not_running": list(not_running(plan.plan)) if plan else [],
        }


def not_running(plan: EdgePlan) -> list[str]:
    """Sentences for what the file asks for and this version does not carry out."""
    found = []
    waiting = [each.path for each in plan.routes if each.mode is RouteMode.DELIVER]
    if waiting:
        routes = "1 route" if len(waiting) == 1 else f"{len(waiting)} routes"
        found.append(
            f"`deliver` does not run yet: messages of {routes} ({', '.join(waiting[:5])}"
            f"{', …' if len(waiting) > 5 else ''}) are stored and wait."
        )
    if plan.observability.tracing is not None:
        found.append(
            "`tracing` does not run yet: no trace is exported; `traceparent` is kept with each message."
        )
    if plan.backpressure is not None:
        found.append("`adaptive_backpressure` does not run yet: requests are refused when a queue is full.")
    log = plan.observability.runtime_log
    if log is not None and (log.output, log.format) != ("stderr", "json"):
        found.append("`runtime_log` goes to stderr as JSON; its `output` and `format` do not run yet.")
    found += [
        f"{each.part.value} does not run yet (from line {each.first_line})."
        for each in plan.dormant
        if each.part is not EdgePart.DELIVERY
    ]
    return found
