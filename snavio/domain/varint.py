"""Variable-length numbers of protobuf, for frames that are put together without parsing their parts.

Never used for what a generated class can serialise itself.
"""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
