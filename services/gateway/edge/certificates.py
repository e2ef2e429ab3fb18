"""The identity in a client's verified certificate.

Never an identity from a certificate with none or with two: which of two is meant, nobody can tell.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography import x509


def spiffe_uri(der: bytes | None) -> str:
    """The one URI of a certificate that TLS has verified; empty without one."""
    return _uri(der) if der else ""


@lru_cache(maxsize=1024)
def _uri(der: bytes) -> str:
    try:
        names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return ""
    uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    return uris[0] if len(uris) == 1 else ""
