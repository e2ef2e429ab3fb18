"""Reads how much of each shared bound every tenant uses, from all services of a mesh.

Never adds up over services: each has bounds of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from snavio.launch.probes import Probes


@dataclass(frozen=True, slots=True)
class Holding:
    """A tenant's part of one bound of one service; the tenant is empty for the mesh and its operators."""

    tenant: str
    service: str
    bound: str
    used: int
    share: int

    @property
    def part(self) -> float:
        """Of its share, 1.0 when it is full."""
        return self.used / self.share if self.share else 0.0


@dataclass(frozen=True, slots=True)
class SharedBound:
    """One bound of one service, all tenants together."""

    service: str
    bound: str
    total: int
    per_tenant: int
    reserve: int
    used: int
    refused: int


@dataclass(frozen=True, slots=True)
class ShareReading:
    """All shared bounds of a mesh at one moment."""

    bounds: tuple[SharedBound, ...]
    holdings: tuple[Holding, ...]
    """Those next to their share first."""
    silent: tuple[str, ...]
    """Services that did not answer."""
    tenant: str = ""
    """The only one whose holdings these are, if one was asked for."""

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


async def read_shares(probes: Probes, *, tenant: str = "") -> ShareReading:
    """Ask every service: for those that hold most of each bound, or for all that one tenant holds."""
    statuses = await probes.statuses(tenant=tenant)
    bounds: list[SharedBound] = []
    holdings: list[Holding] = []
    for service, status in statuses.items():
        for share in status.share if status is not None else ():
            bounds.append(
                SharedBound(
                    service,
                    share.bound,
                    share.total,
                    share.per_tenant,
                    share.reserve,
                    share.used,
                    share.refused,
                )
            )
            holdings += [
                Holding(
                    holder.tenant,
                    service,
                    share.bound,
                    holder.used,
                    share.per_tenant if holder.tenant else share.total,
                )
                for holder in share.holder
                if not tenant or holder.tenant == tenant
            ]
    holdings.sort(key=lambda each: (-each.part, each.tenant, each.service, each.bound))
    silent = tuple(service for service, status in statuses.items() if status is None)
    return ShareReading(tuple(bounds), tuple(holdings), silent, tenant)
