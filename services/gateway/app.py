"""Composes the gateway.

Never listens for tenants before the denylist and the directory's tenants were read.
"""

from __future__ import annotations

from services.gateway.audit import Audit
from services.gateway.callers import Callers
from services.gateway.capabilities import StreamCapabilities
from services.gateway.event_streams import LOOK_SECONDS, OPERATION, EventStreams, frame
from services.gateway.feeds import Feeds
from services.gateway.positions import Positions
from services.gateway.settings import GatewaySettings
from services.gateway.tenant_views import CONFIG, STATE, TenantViews
from services.gateway.tenants import TenantNames
from services.gateway.web import application
from snavio.host.service import HostedService
from snavio.host.shares import ShareLimit, Shares
from snavio.http.server import HttpServer
from snavio.rpc.methods import Methods
from snavio.rpc.peer import Peers
from snavio.signed.stream_chain import ChainEnd, StreamChain, keys_from_signer


class GatewayApp(HostedService[GatewaySettings]):
    """One gateway process."""

    service = "gateway"
    journal = "memory"

    async def compose(self) -> int:
        """Read the denylist and the tenants, then serve operators over gRPC and tenants over HTTPS."""
        host, mesh, settings, clock = self.host, self.host.mesh, self._settings, self.host.clock
        await host.read_denylist()
        signer, relay = host.channel("signer"), host.channel("relay")
        tenants = await host.run(
            TenantNames(
                host.channel("registry"),
                clock=clock,
                interval_s=host.pull_interval_s,
                instance=settings.instance,
            ),
            within_s=settings.start_within_s,
        )
        capabilities = StreamCapabilities(signer, clock=clock)
        callers = Callers(
            peers=Peers(trust_domain=mesh.trust_domain),
            gate=host.gate,
            tenants=tenants,
            check_capability=capabilities.check,
        )
        streams = Shares("streams", ShareLimit(settings.streams, settings.streams_per_tenant))
        kept = Shares("tail_bytes", ShareLimit(settings.tail_bytes, settings.tail_bytes_per_tenant))
        positions = Positions(relay)

        def chain(tenant: str, after: ChainEnd | None, gaps: bool) -> StreamChain:
            return StreamChain(
                tenant, keys=keys_from_signer(signer, tenant), clock=clock, after=after, gaps=gaps
            )

        feeds = host.hold(Feeds(relay, chain=chain, frame=frame, kept=kept, clock=clock))
        audit = Audit(host.reporting, within_s=settings.audit_within_s)
        events = EventStreams(
            settings=settings,
            callers=callers,
            positions=positions,
            feeds=feeds,
            audit=audit,
            gate=host.gate,
            check_capability=capabilities.check,
            streams=streams,
            clock=clock,
        )
        host.every(LOOK_SECONDS, "open event streams", events.look)
        views = TenantViews(callers=callers, positions=positions, signer=signer)
        web = application(
            {OPERATION: events.open, STATE: views.state, CONFIG: views.config}, positions=positions
        )
        server = HttpServer(web, listen=mesh.listens("https"), files=host.files, limits=settings.limits())
        host.introspection.shares(streams, kept, server.connections)
        host.introspection.counts(audit.counters)
        host.introspection.counts(events.counters, prefix="streams_ended.")
        for gauges, prefix in ((events.gauges, ""), (feeds.gauges, "feeds."), (tenants.gauges, "tenants.")):
            host.introspection.gauges(gauges, prefix=prefix)
        port = await host.serve(Methods())
        await host.run(server)
        host.at_stop("event streams", events.stop)
        return port
