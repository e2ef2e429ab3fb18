"""Signs manifests with the platform's key, and verifies the result as a reader would.

Never publishes a manifest whose signature does not verify: readers would skip good files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from snavio.errors import Conflict
from snavio.native import ed25519_verify
from snavio.signed.archive_manifest import ArchiveManifest
from snavio.signed.signed_document import Sign
from snavio.signed.verification import VerifyingKey

Keys = Callable[[], Awaitable[Sequence[VerifyingKey]]]


class ManifestSigner:
    """The platform's signature on manifests."""

    def __init__(self, *, sign: Sign, keys: Keys) -> None:
        self._sign = sign
        self._keys = keys
        self._key_id = ""

    async def signed(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """The manifest with its signature. Unavailable while Signer is away, Conflict when the keys keep changing."""
        signed = await manifest.signed(self._sign, key_id=self._key_id)
        self._key_id = signed.key_id
        if not verified(signed, signed.signed_form(), await self._keys()):
            raise Conflict("Signer's signature does not verify.", reason="bad-signature")
        return signed


def verified(manifest: ArchiveManifest, signed_form: bytes, keys: Sequence[VerifyingKey]) -> bool:
    """True if one of the keys, valid at the time of the export, has signed it."""
    good = [key for key in keys if key.key_id == manifest.key_id and key.good_at(manifest.exported_unix_ns)]
    return any(ed25519_verify(key.public_key, signed_form, manifest.signature) for key in good)
