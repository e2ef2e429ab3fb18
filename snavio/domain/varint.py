"""Variable-length integers of protobuf, for frames that are assembled without parsing their parts.

Never used for messages that a generated class can serialise itself.
"""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Seven bits a byte, least significant first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
