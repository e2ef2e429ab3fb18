"""Keeps Signer in step with the directory about each service: its principals, and its suspension.

Never leaves Signer with an older state: after each call the directory is read again. Of two calls at once the later one
finds the difference and sends it, so a registration cannot undo a suspension that came between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.registry.signer.signer_calls import SignerCalls
from snavio.clock import Clock
from snavio.domain.directory import DirectoryView, Service, Suspension, is_over, require_source
from snavio.errors import Conflict
from snavio.ports.directory import Directory

MOST_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class ServiceNotice:
    """State of a service that Signer has, or should have."""

    service: Service
    suspended: bool


@dataclass(frozen=True, slots=True)
class SignerSync:
    """Sends the state of services to Signer."""

    directory: Directory
    trust: SignerCalls
    clock: Clock

    def suspended(self, view: DirectoryView, source: str) -> bool:
        """True if a source is suspended now."""
        found = view.find(Suspension, source)
        return found is not None and not is_over(found, self.clock.unix_ns())

    async def tell(self, service: Service, *, suspended: bool) -> ServiceNotice:
        """Send Signer the state that is about to be written; `agree` must follow, even if the write fails."""
        await self.trust.principals(service, suspended=suspended)
        return ServiceNotice(service, suspended)

    async def agree(self, source: str, told: ServiceNotice | None = None) -> None:
        """Send Signer the state of the directory until the directory has not changed meanwhile.

        A service that the directory does not have is sent without principals, if it was sent before.
        """
        named = require_source(source, "source")
        for _ in range(MOST_ATTEMPTS):
            _, (service, suspended) = await self.directory.read(
                lambda view: (view.find(Service, *named.key), self.suspended(view, source))
            )
            if service is None and told is None:
                return
            says = ServiceNotice(service or named, suspended)
            if says == told:
                return
            await self.trust.principals(says.service, suspended=says.suspended)
            told = says
        raise Conflict(f"{source} changes faster than Signer can be told.", reason="changes-too-fast")
