"""The principals that may act as a service: those that its registration names, unless it is suspended.

Pure; denies by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from snavio.domain.identity import Identity, IdentityKind, valid_name
from snavio.errors import BadRequest, NotAllowed

MAX_PRINCIPALS: Final = 64


@dataclass(frozen=True, slots=True)
class Delegation:
    """Registry's answer about one service."""

    source: str
    principals: tuple[str, ...] = ()
    suspended: bool = False

    def __post_init__(self) -> None:
        if len(self.principals) > MAX_PRINCIPALS or not all(map(valid_name, self.principals)):
            raise BadRequest(
                f"principal: must be at most {MAX_PRINCIPALS} names of principals.", reason="bad-field"
            )

    def names(self, principal: Identity) -> bool:
        """True if `principal` is registered for the service and belongs to the same tenant."""
        tenant = self.source.partition("/")[0]
        return (
            principal.kind is IdentityKind.PRINCIPAL
            and principal.tenant == tenant
            and principal.name in self.principals
        )


def require_delegated(delegation: Delegation | None, source: str, delegate: Identity | None) -> None:
    """NotAllowed unless `delegate` may act as `source` now; None stands for a certificate that an operator issued."""
    if delegation is None:
        raise NotAllowed(f"No service {source} is registered.", reason="unregistered-service")
    if delegation.suspended:
        raise NotAllowed(f"{source} is suspended.", reason="suspended")
    if delegate is not None and not delegation.names(delegate):
        raise NotAllowed(f"The registration of {source} does not name {delegate}.", reason="not-delegated")
