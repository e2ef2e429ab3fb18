"""The chain of a certificate, as the CA wrote it into the certificate, and the subjects under which it can be revoked.

Pure. A revocation names one subject and a time, so its size does not depend on the number of renewals. Never compares
clocks: issue times of one CA rise with every certificate, also when its clock is set back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from snavio.domain.identity import Identity

ALWAYS: Final = 2**63 - 1
"""An issue time after every other: a revocation until then covers its subject at any time of issue."""

_SERIAL: Final = re.compile(r"[0-9a-f]{1,40}")
_TEXT: Final = re.compile(r"1 ([0-9]{1,19}) ([0-9a-f]{1,40}) ([0-9a-f]{1,40}|-) ([!-~]{1,1024})")


class Revoked(NamedTuple):
    """One entry of the denylist: covers certificates with this subject that were issued before that time."""

    subject: str
    before_ns: int = ALWAYS


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origin of a certificate."""

    issued_ns: int = 0
    """Place in the order of issue; 0 for a certificate without lineage."""
    root: str = ""
    """Serial of the first certificate of its chain of renewals; its own for the first."""
    via: str = ""
    """Root of the principal's chain with which a service's chain was begun."""
    delegate: str = ""
    """SPIFFE id of the principal whose right a service's certificate was issued under."""

    def text(self) -> str:
        """The text in the certificate."""
        return f"1 {self.issued_ns} {self.root} {self.via or '-'} {self.delegate or '-'}"

    def subjects(self, serial: str, identity: Identity) -> tuple[str, ...]:
        """Every subject whose revocation covers a certificate of that serial and identity."""
        name = identity.spiffe_id
        found = [serial, name]
        if self.root and self.root != serial:
            found.append(self.root)
        if self.via:
            found.append(self.via)
        if self.delegate:
            found += [self.delegate, through(name, self.delegate)]
        if identity.tenant:
            found.append(tenant_subject(identity.tenant))
        return tuple(found)


def parse_lineage(text: str) -> Lineage:
    """The inverse of `Lineage.text`; ValueError for anything else."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError("not a lineage")
    issued, root, via, delegate = match.groups()
    return Lineage(int(issued), root, "" if via == "-" else via, "" if delegate == "-" else delegate)


def through(spiffe_id: str, delegate: str) -> str:
    """The subject of certificates that a service got through one principal."""
    return f"{spiffe_id} {delegate}"


def tenant_subject(tenant: str) -> str:
    """The subject of all certificates of a tenant."""
    return f"tenant:{tenant}"


def is_serial(subject: str) -> bool:
    """True for the serial of a certificate or of the root of a chain."""
    return _SERIAL.fullmatch(subject) is not None


def normal_subject(subject: str) -> str:
    """The subject in canonical spelling; ValueError when no certificate can have it."""
    lower = subject.lower()
    if is_serial(lower):
        return lower.lstrip("0") or "0"
    if subject.startswith(("spiffe://", "tenant:")):
        return subject
    raise ValueError("not a subject")


def tenant_of_spiffe(spiffe_id: str) -> str:
    """The tenant in a SPIFFE id; empty where it has none."""
    parts = spiffe_id.split("/")
    return parts[4] if len(parts) > 5 and parts[3] == "tenant" else ""


def inherited(parent: Lineage, parent_serial: str, *, renewal: bool) -> tuple[str, str]:
    """Root and via of a certificate requested with another one: the same chain for a renewal, otherwise a new chain."""
    root = parent.root or parent_serial
    return (root, parent.via) if renewal else ("", root)
