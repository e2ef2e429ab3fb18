"""The part of a protobuf message that calls need, for servers and clients alike.

Never imports anything: a client takes it without the server side.
"""

from __future__ import annotations

from typing import Protocol, Self


class ProtoMessage(Protocol):
    """A message of the generated code."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The bytes for the wire."""
        ...

    def DiscardUnknownFields(self) -> None:  # noqa: N802
        """Drop fields that this program does not know, at any depth."""
        ...

    def ByteSize(self) -> int:  # noqa: N802
        """Length of the bytes for the wire."""
        ...

    @classmethod
    def FromString(cls, s: bytes, /) -> Self:  # noqa: N802
        """The message behind bytes from the wire."""
        ...
