"""Keeps Signer in step with the directory about each service: its principals, and its suspension.

Never leaves Signer with an older state: after each call the directory is read again. Of two calls at once the later one
finds the difference and sends it, so a registration cannot undo a suspension that came between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.registry.signer.signer_calls import SignerCalls
from snavio.clock import Clock
from snavio.domain.directory import DirectoryView, Service, Suspension, require_source, suspension_of
from snavio.errors import Conflict
from snavio.ports.directory import Directory

MOST_ATTEMPTS: Final = 8
MOST_SERVICES: Final = 1_000_000
"""More than `[registry] max_services_per_tenant` can allow."""


@dataclass(frozen=True, slots=True)
class ServiceNotice:
    """State of a service that Signer has, or should have."""

    service: Service
    suspended: bool
    removed: bool = False
    """The directory has no such service any more."""


@dataclass(frozen=True, slots=True)
class SignerSync:
    """Sends the state of services to Signer."""

    directory: Directory
    trust: SignerCalls
    clock: Clock

    def suspended(self, view: DirectoryView, source: str) -> bool:
        """True if a source, or its whole tenant, is suspended now."""
        return suspension_of(view, source, self.clock.unix_ns()) is not None

    async def tell(self, service: Service, *, suspended: bool) -> ServiceNotice:
        """Send Signer the state that is about to be written; `agree` must follow, even if the write fails."""
        await self.trust.principals(service, suspended=suspended)
        return ServiceNotice(service, suspended)

    async def remove(self, service: Service) -> ServiceNotice:
        """Send Signer that a service is about to be deleted; `agree` must follow, even if the write fails."""
        await self.trust.remove(service)
        return ServiceNotice(service, suspended=False, removed=True)

    async def agree_on(self, suspension: Suspension) -> None:
        """`agree` about every service that a suspension is about."""
        if not suspension.whole_tenant:
            await self.agree(suspension.source)
            return
        _, services = await self.directory.read(
            lambda view: view.under(Service, suspension.tenant, limit=MOST_SERVICES)
        )
        for service in services:
            await self.agree(service.source)

    async def agree(self, source: str, told: ServiceNotice | None = None) -> None:
        """Send Signer the state of the directory until the directory has not changed meanwhile.

        A service that the directory does not have is sent without principals, if it was sent before.
        """
        named = require_source(source, "source")
        for _ in range(MOST_ATTEMPTS):
            _, (service, suspended) = await self.directory.read(
                lambda view: (view.find(Service, *named.key), self.suspended(view, source))
            )
            if service is None and (told is None or told.removed):
                return
            says = ServiceNotice(service or named, suspended)
            if says == told:
                return
            await self.trust.principals(says.service, suspended=says.suspended)
            told = says
        raise Conflict(f"{source} changes faster than Signer can be told.", reason="changes-too-fast")
