"""A capability: a right to use mailbox topics that its holder can narrow without asking, and that cannot be widened.

A macaroon: the signature of the identifier under a root key is the key under which the first caveat is signed, and
so on. Whoever holds it can add a caveat; taking one away would take the signature that came before it.
Pure: keys and ids come as arguments. Never shows a signature in a repr: it is the right itself.

    1 | u16 length, identifier | u8 count | (u16 length, caveat) … | signature, 32 bytes      text: snvcap1.<base64url>
    identifier: snavio-cap-1 ⏎ root ⏎ version ⏎ id ⏎ issued, ms ⏎ realm
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from snavio.domain.caveat import MAX_CAVEAT_BYTES, Caveat, CaveatBounds, Denial, parse, require_pattern
from snavio.errors import BadRequest

MAX_BYTES: Final = 2048
MAX_CAVEATS: Final = 32
TAG_BYTES: Final = 32
PREFIX: Final = "snvcap1."
# Four characters carry three bytes.
MAX_TEXT: Final = len(PREFIX) + (MAX_BYTES * 4 + 2) // 3

_FORMAT = b"\x01"
_LABEL = "snavio-cap-1"
_SALT = b"snavio capability root 1"
_IDENTIFIER = re.compile(
    rf"{_LABEL}\n([0-9a-f]{{16}})\n([1-9][0-9]{{0,8}})\n([0-9a-f]{{32}})\n([1-9][0-9]{{0,15}})\n(\S+)"
)


@dataclass(frozen=True, slots=True)
class Identifier:
    """Identifies a capability and the root key that made it."""

    root: str
    """Identifies one secret of Signer, 16 hex digits."""
    version: int
    """Version of the realm's root key."""
    cap_id: str
    """32 hex digits; a narrowed capability keeps it, so revoking it revokes everything derived from it."""
    issued_ms: int
    realm: str
    """The topic whose root key made it, or `<tenant>/*` or `*`. No caveat extends beyond it."""

    def text(self) -> str:
        """The text that is signed."""
        return f"{_LABEL}\n{self.root}\n{self.version}\n{self.cap_id}\n{self.issued_ms}\n{self.realm}"

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """The inverse of `text`; BadRequest for any other spelling."""
        found = _IDENTIFIER.fullmatch(text)
        if found is None:
            raise _malformed()
        root, version, cap_id, issued_ms, realm = found.groups()
        require_pattern(realm)
        return cls(root, int(version), cap_id, int(issued_ms), realm)


@dataclass(frozen=True, slots=True)
class Capability:
    """One capability. Only `verify` under its root key tells whether it is genuine."""

    identifier: Identifier
    caveats: tuple[Caveat, ...]
    signature: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.signature) != TAG_BYTES or len(self.caveats) > MAX_CAVEATS:
            raise _malformed()

    def bounds(self) -> CaveatBounds:
        """The bounds that the realm and all caveats leave."""
        return CaveatBounds.of(self.identifier.realm, self.caveats)

    def attenuate(self, *caveats: Caveat) -> Capability:
        """The capability with more caveats; needs no key and no network."""
        narrowed = replace(
            self,
            caveats=(*self.caveats, *caveats),
            signature=list(_chain(self.signature, caveats))[-1] if caveats else self.signature,
        )
        narrowed.encode()
        return narrowed

    def encode(self) -> bytes:
        """Its bytes; BadRequest when there are too many."""
        parts = [_FORMAT, _sized(self.identifier.text()), bytes([len(self.caveats)])]
        parts += [_sized(caveat.text()) for caveat in self.caveats]
        encoded = b"".join((*parts, self.signature))
        if len(encoded) > MAX_BYTES:
            raise BadRequest(f"A capability has at most {MAX_BYTES} bytes.", reason=Denial.MALFORMED.reason)
        return encoded

    def text(self) -> str:
        """The text for people and metadata."""
        return PREFIX + urlsafe_b64encode(self.encode()).rstrip(b"=").decode()


def derive_root(secret: bytes, *, realm: str, version: int) -> bytes:
    """The root key of a realm: HKDF-SHA256, so that one topic's key says nothing about another's."""
    extracted = hmac.digest(_SALT, secret, "sha256")
    return hmac.digest(extracted, f"{version}\n{realm}".encode() + b"\x01", "sha256")


def mint(root_key: bytes, identifier: Identifier, *caveats: Caveat) -> Capability:
    """A new capability."""
    first = Capability(identifier, (), hmac.digest(root_key, identifier.text().encode(), "sha256"))
    return first.attenuate(*caveats)


def verify(root_key: bytes, capability: Capability) -> tuple[bytes, ...] | None:
    """The signature after each caveat, in order; None if the capability is not genuine."""
    signature = hmac.digest(root_key, capability.identifier.text().encode(), "sha256")
    steps = tuple(_chain(signature, capability.caveats))
    return steps if hmac.compare_digest(steps[-1] if steps else signature, capability.signature) else None


def read_text(text: str) -> Capability:
    """The capability of a text; BadRequest with a `Denial`'s reason for any spelling but that of `Capability.text`."""
    body = text.removeprefix(PREFIX)
    if len(text) > MAX_TEXT or len(body) == len(text) or not body.isascii():
        raise _malformed()
    try:
        encoded = urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except (binascii.Error, ValueError):
        raise _malformed() from None
    # The decoder skips strange characters and ignores the last bits; two texts must never be one capability.
    if urlsafe_b64encode(encoded).rstrip(b"=").decode() != body:
        raise _malformed()
    return decode(encoded)


def decode(encoded: bytes) -> Capability:
    """The capability of its bytes; BadRequest if they are cut, too many, or have a rest."""
    if len(encoded) > MAX_BYTES or encoded[:1] != _FORMAT:
        raise _malformed()
    identifier, at = _piece(encoded, 1, MAX_BYTES)
    count, at = encoded[at] if at < len(encoded) else 0, at + 1
    if count > MAX_CAVEATS:
        raise _malformed()
    caveats = []
    for _ in range(count):
        caveat, at = _piece(encoded, at, MAX_CAVEAT_BYTES)
        caveats.append(parse(caveat))
    if len(encoded) - at != TAG_BYTES:
        raise _malformed()
    return Capability(Identifier.parse(identifier), tuple(caveats), encoded[at:])


def _chain(signature: bytes, caveats: tuple[Caveat, ...]) -> Iterator[bytes]:
    for caveat in caveats:
        signature = hmac.digest(signature, caveat.text().encode(), "sha256")
        yield signature


def _sized(text: str) -> bytes:
    body = text.encode()
    return len(body).to_bytes(2, "big") + body


def _piece(encoded: bytes, at: int, most: int) -> tuple[str, int]:
    begin = at + 2
    end = begin + int.from_bytes(encoded[at:begin], "big")
    if begin > len(encoded) or end > len(encoded) or end - begin > most:
        raise _malformed()
    try:
        return encoded[begin:end].decode("ascii"), end
    except UnicodeDecodeError:
        raise _malformed() from None


def _malformed() -> BadRequest:
    return BadRequest(Denial.MALFORMED.sentence, reason=Denial.MALFORMED.reason)
