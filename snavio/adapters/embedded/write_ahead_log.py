"""Checks SQLite's write-ahead log before SQLite opens it, and tells damage from a torn end that a crash left.

SQLite takes a frame that does not verify for the end of the log: one flipped bit silently hides every commit behind it.
Never refuses a log for its torn end, and never writes to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from snavio.errors import IntegrityError
from snavio.native import WalWalk

HEADER_BYTES: Final = 32
_STEP_FRAMES: Final = 1024


@dataclass(frozen=True, slots=True)
class WalFinding:
    """The result of checking one log. Without `damaged_at` the log is whole, or torn where a crash left it."""

    path: Path
    committed: int = 0
    """Transactions before the damage."""
    committed_end: int = 0
    behind: int = 0
    """Transactions behind it, which SQLite would not read."""
    behind_end: int = 0
    damaged_at: int | None = None
    flip: tuple[int, int] | None = None
    """Byte and bit whose flip makes the log whole, if exactly one bit would."""

    def require_whole(self) -> None:
        """IntegrityError for damage: the commits that SQLite would skip were acknowledged."""
        if self.damaged_at is not None:
            raise IntegrityError(
                f"{self.path} is damaged at byte {self.damaged_at}: opened as it is, "
                f"{self._lost()} would be gone without a word. Stop the mesh; then `snavio restore` brings a backup "
                "back, or `snavio store rescue` keeps what can be kept and says what is gone."
            )

    def _lost(self) -> str:
        return "what it holds" if not self.behind else f"{self.behind} acknowledged transactions"


def wal_path(store: Path) -> Path:
    """The path of SQLite's log of the store at `store`."""
    return store.with_name(store.name + "-wal")


def walk(store: Path) -> WalFinding:
    """Check the log of the store at `store` in one pass; an absent log is whole."""
    path = wal_path(store)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return WalFinding(path)
    with file:
        header = file.read(HEADER_BYTES)
        try:
            found = WalWalk(header)
        except ValueError:
            return _without_header(path, header, file)
        while frames := file.read(_STEP_FRAMES * found.frame_bytes):
            found.feed(frames)
    offset, flip = found.damage or (None, None)
    return WalFinding(
        path, found.committed, found.committed_end, found.behind, found.behind_end, offset, flip
    )


def _without_header(path: Path, header: bytes, file: BinaryIO) -> WalFinding:
    """The finding for a log without a valid header, which is synced before the frames: damaged if it has frames."""
    while piece := file.read(1 << 20):
        if piece.count(0) != len(piece):
            return WalFinding(path, damaged_at=0, flip=WalWalk.header_flip(header))
    return WalFinding(path)
