"""SPIFFE identities of one trust domain, as values.

Never guesses: a name that is not exactly of one of the known forms is no identity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from snavio.errors import BadRequest

DEFAULT_TRUST_DOMAIN = "snavio.local"
MESH_SERVICES = frozenset({"shield", "fast", "slow", "signer", "registry", "mailbox", "relay", "gateway"})

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TRUST_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class IdentityKind(Enum):
    """The kinds of identity."""

    MESH = "mesh"
    PRINCIPAL = "principal"
    SERVICE = "service"
    OPERATOR = "operator"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Identity:
    """One caller. `tenant` is empty except for principals and services."""

    trust_domain: str
    kind: IdentityKind
    name: str
    tenant: str = ""

    @property
    def source(self) -> str:
        """`<tenant>/<service>`, the source of its commands; for service identities only."""
        if self.kind is not IdentityKind.SERVICE:
            raise BadRequest(f"{self} is not a service, so it has no source.", reason="not-a-service")
        return f"{self.tenant}/{self.name}"

    @property
    def spiffe_id(self) -> str:
        """The URI in the certificate."""
        tenant = f"tenant/{self.tenant}/" if self.tenant else ""
        return f"spiffe://{self.trust_domain}/{tenant}{self.kind.value}/{self.name}"

    def __str__(self) -> str:
        return self.spiffe_id


def valid_name(name: str) -> bool:
    """True if `name` may name a tenant, service, principal or operator."""
    return _NAME.fullmatch(name) is not None


def parse_identity(uri: str, *, trust_domain: str = DEFAULT_TRUST_DOMAIN) -> Identity:
    """The identity of a SPIFFE URI of this trust domain; BadRequest for anything else."""
    if not _TRUST_DOMAIN.fullmatch(trust_domain):
        raise BadRequest(f"{trust_domain!r} is not a trust domain.", reason="bad-trust-domain")
    prefix = f"spiffe://{trust_domain}/"
    path = uri[len(prefix) :].split("/") if uri.startswith(prefix) else []
    match path:
        case ["mesh", name] if name in MESH_SERVICES:
            return Identity(trust_domain, IdentityKind.MESH, name)
        case ["operator" | "job" as kind, name] if valid_name(name):
            return Identity(trust_domain, IdentityKind(kind), name)
        case ["tenant", tenant, "principal" | "service" as kind, name] if valid_name(tenant) and valid_name(
            name
        ):
            return Identity(trust_domain, IdentityKind(kind), name, tenant)
    raise BadRequest(f"{uri!r} is not an identity of {trust_domain}.", reason="bad-identity")
