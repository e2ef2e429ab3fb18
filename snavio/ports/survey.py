"""The directory's present as bytes in bulk, for whoever copies all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from snavio.domain.directory import Value


class Survey(Protocol):
    """The directory at one moment; valid only while it is being taken."""

    @property
    def version(self) -> int:
        """Of the moment."""
        ...

    @property
    def epoch(self) -> int:
        """Of the directory."""
        ...

    def records(self, kind: type[Value]) -> Iterator[bytes]:
        """Every record of a kind, by key, in pages of lines `<checksum, 16 hex digits> <version> <JSON>`.

        The checksums are not looked at here; whoever reads the lines does.
        """
        ...
