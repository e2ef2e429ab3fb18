"""The addresses and certificates of a producer or a consumer, from a context.

Never acts as a service of another tenant than the context's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from snavio.domain.identity import IdentityKind, parse_identity, valid_name
from snavio.errors import BadRequest
from snavio.rpc.renewal import Leaf
from snavio.sdk.context import Context, chosen
from snavio.sdk.settings import Endpoints


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """One service at one mesh."""

    endpoints: Endpoints
    tenant: str
    source: str
    certificates: Path
    principal: Path | None
    """Folder of the principal's certificate through which the service's own is had; None if it is there."""
    gateway: str = ""
    """Address at which the mesh serves HTTPS; empty if the context does not say it."""


def service_access(service: str, context: str | None) -> ServiceAccess:
    """`service` in the context of that name, or in the one in force; BadRequest when there is none."""
    found = chosen(context)
    if found is None:
        raise BadRequest(
            "No context is in use: `snavio join` makes one, `snavio context use` or SNAVIO_CONTEXT chooses one.",
            reason="no-context",
        )
    found.require_ca()
    leaf = Leaf.in_folder(found.identity)
    who = parse_identity(leaf.spiffe_id, trust_domain=found.trust_domain)
    if who.kind is IdentityKind.SERVICE and service in ("", who.name, who.source):
        return ServiceAccess(found.endpoints(), who.tenant, who.source, found.identity, None, _gateway(found))
    if who.kind is not IdentityKind.PRINCIPAL:
        raise BadRequest(
            f"The context {found.name} is that of {who}, which cannot act as {service[:80]!r}.",
            reason="wrong-context",
        )
    return _through_principal(service, found)


def _through_principal(service: str, context: Context) -> ServiceAccess:
    tenant, _, name = service.rpartition("/")
    if tenant not in ("", context.tenant) or not valid_name(name):
        raise BadRequest(
            f"{service[:80]!r} is no service of {context.tenant}, whose context {context.name} is.",
            reason="bad-source",
        )
    return ServiceAccess(
        context.endpoints(),
        context.tenant,
        f"{context.tenant}/{name}",
        context.service_folder(name),
        context.identity,
        _gateway(context),
    )


def _gateway(context: Context) -> str:
    return context.addresses.get("https", "")
