"""The present directory as bytes in bulk, for copying all of it. Never checks checksums: the reader does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from snavio.domain.directory import Value


class Survey(Protocol):
    """The directory at one moment; valid only while it is being taken."""

    @property
    def version(self) -> int:
        """Version of the directory at that moment."""
        ...

    @property
    def epoch(self) -> int:
        """Epoch of the directory."""
        ...

    def records(self, kind: type[Value]) -> Iterator[bytes]:
        """Every record of a kind, by key, in pages of lines `<checksum, 16 hex digits> <version> <JSON>`.

        The checksums are not looked at here; whoever reads the lines does.
        """
        ...
