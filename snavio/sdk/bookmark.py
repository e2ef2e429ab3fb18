"""The place in a stream up to which everything was handled.

Never ahead of the handler, and never half written: a place that is lost is read again, one that is too far is not.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from snavio.errors import StateError


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """The last envelope that was handled, and its digest, which the next one must name."""

    seq: int
    digest: str = ""


class Bookmark(Protocol):
    """Keeps one place. Called from the reader's own task."""

    def read(self) -> StreamPlace | None:
        """The place; None before the first."""
        ...

    def move(self, place: StreamPlace) -> None:
        """Keep this place; durable when it returns, if the bookmark is."""
        ...


class MemoryBookmark:
    """A place that ends with the process."""

    def __init__(self, place: StreamPlace | None = None) -> None:
        self._place = place

    def read(self) -> StreamPlace | None:
        return self._place

    def move(self, place: StreamPlace) -> None:
        self._place = place


class FileBookmark:
    """A place in a file of its own; one reader at a time."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def read(self) -> StreamPlace | None:
        """StateError when the file is there and is none of ours: beginning anew would skip what was not handled."""
        try:
            found = json.loads(self._path.read_bytes())
            return StreamPlace(int(found["seq"]), str(found["digest"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise StateError(
                f"{self._path} is no bookmark: move it away to begin with what comes from now on.",
                reason="bad-bookmark",
            ) from None

    def move(self, place: StreamPlace) -> None:
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            # As text: other readers of the file may not have whole numbers of 64 bits.
            file.write(json.dumps({"seq": str(place.seq), "digest": place.digest}).encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
