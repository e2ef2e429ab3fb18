"""One-time tokens with which a caller without a certificate becomes a principal, or a new instance of a mesh service.

Pure. Never stores a token's secret, only its hash, and never says why a token is refused.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from dataclasses import dataclass, field, replace
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from snavio.errors import BadRequest, Saturated

SECRET_BYTES: Final = 32
CHECKSUM_BYTES: Final = 3
MAX_OPEN: Final = 1000
MAX_OPEN_PER_TENANT: Final = 20
MAX_OPEN_JOINS: Final = 256
MAX_TTL_S: Final = 7 * 86_400
DEFAULT_TTL_S: Final = 86_400
_TOKEN: Final = re.compile(r"snv1\.([0-9a-f]{64})\.([a-z2-7]{56})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a token: the fingerprint of the CA to trust, and the secret."""

    fingerprint: bytes
    secret: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """`snv1.<CA fingerprint>.<secret>`."""
        # The checksum covers the fingerprint too: one mistyped letter anywhere is noticed before anything is sent.
        checked = self.secret + _checksum(self.fingerprint, self.secret)
        return f"snv1.{self.fingerprint.hex()}.{b32encode(checked).decode().lower()}"

    @property
    def digest(self) -> bytes:
        """The stored hash. The secret is 32 random bytes, so it cannot be guessed and needs no salt."""
        return sha256(b"snavio enrolment\n" + self.secret).digest()


def parse_token(text: str) -> Token:
    """The token of its text; BadRequest for anything else."""
    match = _TOKEN.fullmatch(text) if len(text) <= 256 else None
    if match is None:
        raise _garbled()
    fingerprint = bytes.fromhex(match[1])
    checked = b32decode(match[2].upper())
    secret, checksum = checked[:SECRET_BYTES], checked[SECRET_BYTES:]
    if checksum != _checksum(fingerprint, secret):
        raise _garbled()
    return Token(fingerprint, secret)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A token that has not been used."""

    digest: bytes = field(repr=False)
    tenant: str
    principal: str
    """The principal of the certificate; empty lets the enrolling caller choose the name."""
    expires_ns: int
    actor: str
    service: str = ""
    """The mesh service that a new instance becomes; with it there is no tenant and no principal."""


@dataclass(frozen=True, slots=True)
class Enrolments:
    """Every unused token."""

    latest_ns: int = 0
    """The latest time seen: a clock that is set back does not bring an expired token back."""
    open: tuple[Enrolment, ...] = field(default=(), repr=False)

    def at(self, now_ns: int) -> Enrolments:
        """The tokens that have not expired at a time."""
        now = max(now_ns, self.latest_ns)
        left = tuple(enrolment for enrolment in self.open if enrolment.expires_ns > now)
        return self if len(left) == len(self.open) else Enrolments(now, left)

    def find(self, digest: bytes) -> Enrolment | None:
        """The enrolment with that digest, compared in constant time."""
        found = None
        for enrolment in self.open:
            if compare_digest(enrolment.digest, digest):
                found = enrolment
        return found

    def added(self, enrolment: Enrolment, *, now_ns: int) -> Enrolments:
        """With one more token; Saturated when there are too many."""
        current = self.at(now_ns)
        # Tokens of the mesh's own count apart: tenants that hoard theirs keep no service from joining.
        alike = [each for each in current.open if bool(each.service) == bool(enrolment.service)]
        of_tenant = sum(each.tenant == enrolment.tenant for each in alike)
        most, most_of_one = (MAX_OPEN_JOINS,) * 2 if enrolment.service else (MAX_OPEN, MAX_OPEN_PER_TENANT)
        if len(alike) >= most or of_tenant >= most_of_one:
            raise Saturated(
                "There are too many enrolment tokens that nobody has used.",
                retry_after_ms=60_000,
                reason="too-many-tokens",
            )
        return Enrolments(max(now_ns, current.latest_ns), (*current.open, enrolment))

    def without(self, digest: bytes, *, now_ns: int) -> Enrolments:
        """Without the token of that digest."""
        left = tuple(enrolment for enrolment in self.open if not compare_digest(enrolment.digest, digest))
        return replace(self, latest_ns=max(now_ns, self.latest_ns), open=left)


def _checksum(fingerprint: bytes, secret: bytes) -> bytes:
    return sha256(b"snavio token\n" + fingerprint + secret).digest()[:CHECKSUM_BYTES]


def _garbled() -> BadRequest:
    # Never quotes the text: it may be most of a valid token.
    return BadRequest("This is not an enrolment token, or a letter of it is wrong.", reason="bad-token")
