"""Keeps what Signer knows of a service in step with the directory: its principals, and whether it is suspended.

Never leaves Signer with what the directory said before: whoever tells looks again afterwards. Of two who tell at once
the later one finds what it did not tell, and tells that; so a registration cannot undo a suspension that came between.
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
    """What Signer was told of a service, or should be."""

    service: Service
    suspended: bool


@dataclass(frozen=True, slots=True)
class SignerSync:
    """Tells Signer."""

    directory: Directory
    trust: SignerCalls
    clock: Clock

    def suspended(self, view: DirectoryView, source: str) -> bool:
        """Whether a source is suspended now."""
        found = view.find(Suspension, source)
        return found is not None and not is_over(found, self.clock.unix_ns())

    async def tell(self, service: Service, *, suspended: bool) -> ServiceNotice:
        """Tell Signer what is about to be written; `agree` must follow, whatever becomes of the write."""
        await self.trust.principals(service, suspended=suspended)
        return ServiceNotice(service, suspended)

    async def agree(self, source: str, told: ServiceNotice | None = None) -> None:
        """Tell Signer what the directory says, until it says what was told last.

        A service that the directory does not have is told as nobody's, if anything was told of it before.
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
