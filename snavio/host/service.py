"""The chassis of every service: channels, certificate gate, denylist, renewal, telemetry, introspection and server.

A composition makes its decisions, runs its parts on the host and serves. At the end the server drains first, then the
service's parts stop in reverse order, then denylist and renewal, then telemetry, after the last event, then channels.
Never serves before the denylist was read once: a revoked certificate would be let in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Generic, Literal, Protocol, TypeVar

from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity
from snavio.host.introspection import Introspection
from snavio.host.parts import ALL_SECONDS, Parts
from snavio.replication.denylist import Denylist, denylist_poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.certificate_refusals import CertificateRefusals
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import WINDOW_BYTES
from snavio.rpc.methods import Methods
from snavio.rpc.renewal import Renewal, mesh_renewal
from snavio.rpc.server import UNARY_LIMIT_S, UNWIND_S, MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.telemetry.metrics import export_metrics
from snavio.telemetry.reporting import Reporting
from snavio.wiring import open_journal_mark

DRAIN_SECONDS: Final = 5.0
"""For calls under way to finish once the end has begun."""
JournalPlace = Literal["disk", "memory", "none"]


class ServiceSettings(Protocol):
    """Settings that every service has. One of which several may run has its `instance` too."""

    @property
    def start_within_s(self) -> float:
        """Time in which the others must be there at the start."""
        ...


S = TypeVar("S", bound=ServiceSettings)


class ServiceHost(Parts):
    """The parts that every service process has.

    `journal` says where unsent telemetry survives a crash: on `disk`, or in `memory` not at all; `none` is for Relay,
    which stores its own events itself. Signer, which others follow, has `follows_signer=False`: its gate is fed by its
    own store, and it brings its own renewal.
    """

    def __init__(
        self,
        service: str,
        mesh: MeshSettings,
        *,
        clock: Clock,
        start_within_s: float,
        instance: str = "",
        journal: JournalPlace = "disk",
        follows_signer: bool = True,
    ) -> None:
        super().__init__()
        self.service = service
        self.mesh = mesh
        self.clock = clock
        self.start_within_s = start_within_s
        self.instance = instance or f"{service}-0"
        self.epoch = clock.unix_ns()
        """Names this life of the process on streams and in journals."""
        self.pull_interval_s = mesh.pull_interval_ms / 1000
        self.files = CertificateFiles.in_folder(mesh.certificates(service))
        self.gate = CertificateGate(clock=clock)
        self.shares = ServerShares(mesh.share)
        self.introspection = Introspection(service, instance=self.instance, clock=clock)
        self.introspection.shares(*self.shares.all())
        self._channels: dict[tuple[str, bool], MeshChannel] = {}
        self._server: MeshServer | None = None
        self._leaving: Callable[[], None] | None = None
        self._renewal: Renewal | None = None
        self._denylist: Denylist | None = None
        self.at_stop("channels", self._close_channels)
        self._reporting = None if journal == "none" else self._journal(on_disk=journal == "disk")
        refusals = CertificateRefusals(self._certificate_refused, clock=clock)
        self.gate.refused = refusals.refused
        self.introspection.counts(refusals.counters, prefix="certificate_refused.")
        if follows_signer:
            signer = self.channel("signer")
            self.renew(mesh_renewal(mesh.certificates(service), signer, clock=clock))
            self._denylist = denylist_poller(
                signer, self.gate, clock=clock, interval_s=self.pull_interval_s, stale_s=mesh.denylist_stale_s
            )
            self.introspection.gauges(self._denylist.gauges, prefix="denylist.")
            self.at_stop("denylist", self._denylist.stop)

    @property
    def reporting(self) -> Reporting:
        """The service's telemetry; not for a host with `journal="none"`."""
        assert self._reporting is not None
        return self._reporting

    @property
    def denylist(self) -> Denylist:
        """The denylist's poller, which keeps `gate` up to date; not for Signer."""
        assert self._denylist is not None
        return self._denylist

    @property
    def server(self) -> MeshServer:
        """The server, once `serve` was called."""
        assert self._server is not None
        return self._server

    def channel(self, service: str, *, sends: bool = False) -> MeshChannel:
        """The channel to another service, always the same one; it connects at its first use.

        With `sends` it presents a capability to send to every topic, which Signer gives to this service.
        """
        if (service, sends) not in self._channels:
            provider = None
            if sends:
                from snavio.rpc.capability_request import sender

                provider = sender(
                    self.mesh.signer, files=self.files, trust_domain=self.mesh.trust_domain, clock=self.clock
                )
            self._channels[service, sends] = MeshChannel(
                getattr(self.mesh, service),
                files=self.files,
                service=service,
                trust_domain=self.mesh.trust_domain,
                capability_provider=provider,
            )
        return self._channels[service, sends]

    def renew(self, renewal: Renewal) -> None:
        """Have `renewal` keep the service's certificate from `serve` on."""
        self._renewal = renewal
        self.introspection.gauges(renewal.gauges, prefix="certificate.")
        self.at_stop("renewal", renewal.stop)

    async def read_denylist(self) -> None:
        """Read the denylist once, then keep it fresh; Unavailable when Signer does not answer in time."""
        if self._denylist is not None and self._denylist.age_ns() is None:
            await self._denylist.start(within_s=self.start_within_s)

    async def serve(
        self,
        methods: Methods,
        *,
        explain: bool = False,
        leaving: Callable[[], None] | None = None,
        window_bytes: int = WINDOW_BYTES,
        unary_limit_s: float = UNARY_LIMIT_S,
    ) -> int:
        """Serve `methods` and introspection, with `explain` of recent commands too; returns the port.

        `leaving` is called before the server drains, to wake calls that wait for something.
        """
        await self.read_denylist()
        self.introspection.register(methods)
        if explain:
            self._explain(methods)
        self._server = MeshServer(
            listen=self.mesh.listens(self.service),
            files=self.files,
            methods=methods,
            gate=self.gate,
            clock=self.clock,
            trust_domain=self.mesh.trust_domain,
            window_bytes=window_bytes,
            unary_limit_s=unary_limit_s,
            shares=self.shares,
        )
        self._leaving = leaving
        if self._renewal is not None:
            self._renewal.start()
        if self._reporting is not None:
            self._reporting.start()
        port = await self._server.start()
        metrics = export_metrics(self.introspection, exporter=self.mesh.metrics_exporter)
        if metrics is not None:
            self.at_stop("metrics", metrics.stop)
        return port

    async def stop(self, *, within_s: float = ALL_SECONDS) -> None:
        """Drain the server, then stop every part, all `within_s`; may be called again."""
        if self._server is not None:
            server = self._server
            # On top of the stack whenever it was started: whatever handlers use must outlive them.
            self.at_stop("server", lambda: server.drain(DRAIN_SECONDS), within_s=DRAIN_SECONDS + 2 * UNWIND_S)
            # As a part, so that its failure keeps nothing else from stopping.
            self.at_stop("leaving", self._leave)
        await super().stop(within_s=within_s)

    async def _leave(self) -> None:
        if self._leaving is not None:
            self._leaving()

    def _journal(self, *, on_disk: bool) -> Reporting:
        folder = self.mesh.state_dir / self.service
        reporting = Reporting(
            self.mesh,
            service=self.service,
            instance=self.instance,
            epoch=self.epoch,
            clock=self.clock,
            relay=self.channel("relay"),
            mark=open_journal_mark(folder, instance=self.instance, epoch=self.epoch) if on_disk else None,
        )
        reporting.introspect(self.introspection)
        self.at_stop("reporting", reporting.stop)
        return reporting

    def _explain(self, methods: Methods) -> None:
        # Here, because the other services start sooner without them.
        from snavio.telemetry.explain_servicer import ExplainServicer
        from snavio.telemetry.recent_commands import RecentCommands

        recent = RecentCommands(max_bytes=self.mesh.explain_max_mb << 20)
        self.reporting.journal.seen = recent.keep
        self.introspection.gauges(recent.gauges, prefix="recent.")
        registry = self.channel("registry")
        ExplainServicer(recent, instance=self.instance, registry=registry, clock=self.clock).register(methods)

    def _certificate_refused(self, identity: Identity | None, reason: str, count: int) -> None:
        if self._reporting is not None:
            self._reporting.certificate_refused(identity, reason, count)
        else:
            self._log.warning("certificate refused", identity=str(identity or ""), reason=reason, count=count)

    async def _close_channels(self) -> None:
        for channel in self._channels.values():
            await channel.close()


class HostedService(ABC, Generic[S]):
    """One service on its host: `compose` says what is special about it."""

    service: ClassVar[str]
    follows_signer: ClassVar[bool] = True
    journal: JournalPlace = "disk"

    def __init__(self, mesh: MeshSettings, settings: S, clock: Clock) -> None:
        self._settings = settings
        self.host = ServiceHost(
            self.service,
            mesh,
            clock=clock,
            start_within_s=settings.start_within_s,
            instance=getattr(settings, "instance", ""),
            journal=self.journal,
            follows_signer=self.follows_signer,
        )

    @abstractmethod
    async def compose(self) -> int:
        """Build the service's decisions, run its parts and serve; returns the port."""

    async def start(self) -> int:
        """Compose and serve; returns the port. What was started is stopped again if the rest fails to start."""
        try:
            return await self.compose()
        except Exception:
            await self.host.stop()
            raise

    async def drain(self) -> None:
        """Finish calls under way within bounds and release everything; also after a start that was cut short."""
        await self.host.stop()
