"""Forms of names and texts in the directory, and the rules for writing a tenant's entries.

Never repeats a caller's value in an error: it may be of any length and hold anything.
"""

from __future__ import annotations

import re
from typing import Final

from snavio.domain.identity import Identity, IdentityKind, valid_name
from snavio.errors import BadRequest, NotAllowed

MAX_REASON_LENGTH: Final = 256
MAX_EVIDENCE_LENGTH: Final = 2048
NAME_RULE: Final = "lower-case letters, digits and inner hyphens, at most 63"

_TARGET = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def require(holds: bool, where: str, rule: str) -> None:
    """BadRequest that names the field and the rule, unless the rule holds."""
    if not holds:
        raise BadRequest(f"{where}: must be {rule}.", reason="bad-field")


def require_name(name: str, where: str) -> None:
    """A tenant's, service's, principal's or channel's name."""
    require(valid_name(name), where, NAME_RULE)


def require_target(target: str, where: str) -> None:
    """A target's name."""
    require(
        _TARGET.fullmatch(target) is not None,
        where,
        "lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128",
    )


def require_command(name: str, where: str) -> None:
    """A command's name."""
    require(
        _COMMAND_NAME.fullmatch(name) is not None,
        where,
        "letters, digits, '.', '_', ':' and '-', beginning with a letter or digit, at most 128",
    )


def split_source(source: str, where: str) -> tuple[str, str]:
    """Tenant and service of `<tenant>/<service>`."""
    tenant, slash, service = source.partition("/")
    require(
        bool(slash) and valid_name(tenant) and valid_name(service),
        where,
        f"<tenant>/<service>, each of {NAME_RULE}",
    )
    return tenant, service


def require_text(text: str, where: str, most: int = MAX_REASON_LENGTH) -> None:
    """Free text for people: bounded, and without control characters that a terminal would obey."""
    require(len(text) <= most and text.isprintable(), where, f"at most {most} printable characters")


def require_number(number: int, where: str, least: int, most: int) -> None:
    """A whole number within bounds."""
    require(least <= number <= most, where, f"from {least} to {most}")


def require_operator(actor: Identity) -> None:
    """Only operators create tenants and suspend sources."""
    if actor.kind is not IdentityKind.OPERATOR:
        raise NotAllowed(f"{actor} is not an operator.")


def acts_for(actor: Identity, tenant: str) -> bool:
    """True if `actor` is a principal of the tenant, or an operator.

    Services are excluded: a stolen producer certificate must not be able to widen its own rights.
    """
    return actor.kind is IdentityKind.OPERATOR or (
        actor.kind is IdentityKind.PRINCIPAL and actor.tenant == tenant
    )


def require_tenant(actor: Identity, tenant: str) -> None:
    """Only a tenant's own principals, or an operator, write what belongs to the tenant."""
    if not acts_for(actor, tenant):
        raise NotAllowed(f"{actor} may not write what belongs to tenant {tenant}.", reason="not-owner")
