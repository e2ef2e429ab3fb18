"""Invitations: one line of text with all that a newcomer needs to reach a mesh and to be let in once.

Pure. Never half-reads one: a letter that was changed, lost or added anywhere makes it none. Never quoted in an error,
for it holds an enrolment token.
"""

from __future__ import annotations

import re
import struct
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from snavio.domain.enrolment import SECRET_BYTES, Token
from snavio.domain.identity import valid_name
from snavio.errors import BadRequest

SERVICES: Final = ("enrolment", "shield", "fast", "slow", "signer", "registry", "mailbox", "relay")
"""Services with an address in an invitation, in this order."""
MAX_LETTERS: Final = 4096
MAX_TEXT_BYTES: Final = 4096
CHECKSUM_BYTES: Final = 4
_PREFIX: Final = "snvi1."
_TEXT: Final = re.compile(r"snvi1\.([A-Za-z0-9_-]+)", re.ASCII)
_FINGERPRINT_BYTES: Final = 32
_HEAD: Final = struct.Struct(f">Q{_FINGERPRINT_BYTES}s{SECRET_BYTES}s")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}:[0-9]{1,5}", re.ASCII)
_DOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token, with where to use it and which mesh it is for."""

    token: Token = field(repr=False)
    expires_unix_s: int
    tenant: str
    principal: str
    """Empty lets the newcomer choose the name."""
    trust_domain: str
    addresses: Mapping[str, str]

    @property
    def text(self) -> str:
        """The line to hand over."""
        # Hosts are mostly the same: only a port stands where the host is that of the address before.
        words, host = [self.tenant, self.principal, self.trust_domain], ""
        for service in SERVICES:
            address = self.addresses.get(service, "")
            before, (host, _, port) = host, address.rpartition(":")
            words.append(port if address and host == before else address)
        head = _HEAD.pack(self.expires_unix_s, self.token.fingerprint, self.token.secret)
        body = head + zlib.compress("\n".join(words).encode(), 9)
        return _PREFIX + urlsafe_b64encode(body + _checksum(body)).decode().rstrip("=")


def parse_invitation(text: str) -> Invitation:
    """The invitation of its text; BadRequest `bad-invitation` for anything else."""
    # Mail programs break long lines.
    text = "".join(text.split()) if len(text) <= MAX_LETTERS else ""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise _garbled()
    try:
        packed = urlsafe_b64decode(match[1] + "=" * (-len(match[1]) % 4))
        body, checksum = packed[:-CHECKSUM_BYTES], packed[-CHECKSUM_BYTES:]
        # Base64 has several spellings of one text in its last letter: only the one that was made counts.
        if checksum != _checksum(body) or urlsafe_b64encode(packed).decode().rstrip("=") != match[1]:
            raise _garbled()
        expires, fingerprint, secret = _HEAD.unpack(body[: _HEAD.size])
        inflate = zlib.decompressobj()
        words = inflate.decompress(body[_HEAD.size :], MAX_TEXT_BYTES).decode().split("\n")
        tenant, principal, trust_domain, *listed = words
    except (ValueError, struct.error, zlib.error):
        raise _garbled() from None
    names = (
        valid_name(tenant) and (not principal or valid_name(principal)) and _DOMAIN.fullmatch(trust_domain)
    )
    if not names or len(listed) != len(SERVICES):
        raise _garbled()
    addresses, host = {}, ""
    for service, address in zip(SERVICES, listed, strict=True):
        whole = f"{host}:{address}" if address.isdigit() else address
        host = whole.rpartition(":")[0]
        if whole and not _ADDRESS.fullmatch(whole):
            raise _garbled()
        if whole:
            addresses[service] = whole
    if "enrolment" not in addresses:
        raise _garbled()
    return Invitation(Token(fingerprint, secret), expires, tenant, principal, trust_domain, addresses)


def _checksum(body: bytes) -> bytes:
    return sha256(b"snavio invitation\n" + body).digest()[:CHECKSUM_BYTES]


def _garbled() -> BadRequest:
    return BadRequest(
        "This is not an invitation, or a part of it is missing or changed: copy the whole line that `snavio tenant "
        "invite` printed.",
        reason="bad-invitation",
    )
