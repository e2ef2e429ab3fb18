"""Checks SQLite's write-ahead log before SQLite opens it, and tells damage from a torn end that a crash left.

SQLite takes a frame that does not verify for the end of the log: one flipped bit silently hides every commit behind it.
Never refuses a log for its torn end, and never writes to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from snavio.adapters.embedded.commit_mark import CommitMark, read_mark
from snavio.errors import IntegrityError
from snavio.native import WalWalk

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
_SALTS: Final = slice(16, 24)
_FRAME_SALTS: Final = slice(8, 16)
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
    hidden: str = "what it holds"
    """The part that SQLite would not read, where no transactions behind the damage can be counted."""

    def require_whole(self) -> None:
        """IntegrityError for damage: the commits that SQLite would skip were acknowledged."""
        if self.damaged_at is not None:
            raise IntegrityError(
                f"{self.path} is damaged at byte {self.damaged_at}: opened as it is, "
                f"{self._lost()} would be gone without a word. Stop the mesh; then `snavio restore` brings a backup "
                "back, or `snavio store rescue` keeps what can be kept and says what is gone."
            )

    def _lost(self) -> str:
        return f"{self.behind} acknowledged transactions" if self.behind else self.hidden


def wal_path(store: Path) -> Path:
    """The path of SQLite's log of the store at `store`."""
    return store.with_name(store.name + "-wal")


def walk(store: Path) -> WalFinding:
    """Check the log of the store at `store` in one pass; an absent log is whole.

    One that ends before its store's mark is damaged in its last transactions.
    """
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
        if found.damage is None:
            mark = read_mark(store)
            if mark.salts == header[_SALTS] and mark.log_end > found.committed_end:
                return _before_its_mark(path, found, mark, file)
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


def _before_its_mark(path: Path, found: WalWalk, mark: CommitMark, file: BinaryIO) -> WalFinding:
    """The finding for a log whose last transactions were acknowledged and do not verify, or are not there."""
    end = found.committed_end
    file.seek(0)
    salts = file.read(HEADER_BYTES)[_SALTS]
    for offset in range(end, mark.log_end, found.frame_bytes):
        file.seek(offset)
        frame = file.read(found.frame_bytes)
        # One of an earlier log was never written over: what it holds is older than what was acknowledged.
        if len(frame) < found.frame_bytes or frame[_FRAME_SALTS] != salts:
            break
        end = offset + found.frame_bytes
    return WalFinding(
        path,
        found.committed,
        found.committed_end,
        behind_end=end if end == mark.log_end else found.committed_end,
        damaged_at=found.committed_end,
        hidden="the last acknowledged transactions",
    )
