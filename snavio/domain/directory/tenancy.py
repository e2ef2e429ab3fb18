"""Tenants, their principals and services, and the target names that they own. Valid once built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from snavio.domain.directory.rules import require, require_name, require_target, split_source

MAX_PRINCIPALS: Final = 64


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant."""

    kind: ClassVar[str] = "tenant"
    tenant: str

    def __post_init__(self) -> None:
        require_name(self.tenant, "tenant")

    @property
    def key(self) -> tuple[str, ...]:
        """Unique within its kind."""
        return (self.tenant,)

    @property
    def parent(self) -> str:
        """The entry whose children are counted and bounded together; empty for the whole directory."""
        return ""


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or machine that acts for a tenant."""

    kind: ClassVar[str] = "principal"
    tenant: str
    principal: str

    def __post_init__(self) -> None:
        require_name(self.tenant, "principal.tenant")
        require_name(self.principal, "principal.principal")

    @property
    def key(self) -> tuple[str, ...]:
        return (self.tenant, self.principal)

    @property
    def parent(self) -> str:
        return self.tenant


@dataclass(frozen=True, slots=True)
class Service:
    """A service of a tenant, with the principals of the tenant that may act as it."""

    kind: ClassVar[str] = "service"
    tenant: str
    service: str
    principals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_name(self.tenant, "service.tenant")
        require_name(self.service, "service.service")
        require(
            len(self.principals) <= MAX_PRINCIPALS, "service.principal", f"at most {MAX_PRINCIPALS} names"
        )
        for principal in self.principals:
            require_name(principal, "service.principal")
        # A set, written as a tuple: the same names in another order are the same registration.
        object.__setattr__(self, "principals", tuple(sorted(set(self.principals))))

    @property
    def source(self) -> str:
        """`<tenant>/<service>`, the source of its commands."""
        return f"{self.tenant}/{self.service}"

    @property
    def key(self) -> tuple[str, ...]:
        return (self.tenant, self.service)

    @property
    def parent(self) -> str:
        return self.tenant


@dataclass(frozen=True, slots=True)
class Target:
    """A target's name and the tenant that owns it."""

    kind: ClassVar[str] = "target"
    target: str
    tenant: str

    def __post_init__(self) -> None:
        require_target(self.target, "target.target")
        require_name(self.tenant, "target.tenant")

    @property
    def key(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def parent(self) -> str:
        return self.tenant


def require_source(source: str, where: str) -> Service:
    """The service behind `<tenant>/<service>`."""
    return Service(*split_source(source, where))
