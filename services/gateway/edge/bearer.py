"""Bearer tokens of the listeners that workers and operators use.

Never compares a token in a time that tells how much of it was right, or how long it is.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from services.gateway.edge.secrets import SecretTable
from snavio.edge.references import SecretReference


def shown_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The token in `Authorization: Bearer …`; empty without one, or with two such headers."""
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) != 1:
        return b""
    scheme, _, token = found[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def permitted(shown: bytes, references: Sequence[SecretReference], secrets: SecretTable) -> bool:
    """True when it is one of these; Unavailable when one of them cannot be read."""
    digest, right = hashlib.sha256(shown).digest(), False
    for reference in references:
        value = secrets.value(reference)
        # Each is compared, also after one that fits.
        right |= bool(value) and hmac.compare_digest(hashlib.sha256(value or b"").digest(), digest)
    return right and bool(shown)
