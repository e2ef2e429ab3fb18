"""Repairs a damaged SQLite store: keeps every readable row, and lists the rows that were lost or changed.

Never touches a store that is in use, and never changes a file before a copy of it is set aside.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw

from snavio.adapters.embedded.checksums import RESERVED_AT, RESERVED_BYTES, connect, denies_checksums
from snavio.adapters.embedded.commit_mark import mark_path
from snavio.adapters.embedded.files import fsync_folder, replace_private_file
from snavio.adapters.embedded.sqlite import StoreLock, store_errors
from snavio.adapters.embedded.store_copy import faults_of, lost_commits
from snavio.adapters.embedded.store_rows import (
    SEQUENCE,
    LostRow,
    RowRange,
    difference,
    doubtful,
    rows,
    schema,
    states,
    tables,
    unchecked,
)
from snavio.adapters.embedded.write_ahead_log import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    WalFinding,
    wal_path,
    walk,
)
from snavio.errors import IntegrityError
from snavio.native import reseal_wal

MAX_FLIPS: Final = 64
_MAGIC: Final = bytes.fromhex("377f0682002de218")
_PAGE_SIZE_AT: Final = 16


@dataclass(slots=True)
class Rescued:
    """Steps of the rescue of one store, and its losses."""

    steps: list[str] = field(default_factory=list)
    lost: list[LostRow] = field(default_factory=list)
    stretches: list[RowRange] = field(default_factory=list)


def rescue(path: Path, aside: Path) -> Rescued:
    """Make the store at `path` openable; its files are copied to `aside` first."""
    done = Rescued()
    with StoreLock(path):
        if walk(path).damaged_at is None and not faults_of(path) and not lost_commits(path):
            return done
        _set_aside(path, aside)
        if (mark := mark_path(path)).exists():
            shutil.copy2(mark, aside / mark.name)
        if not path.stat().st_size:
            raise IntegrityError(f"{path} is empty.")
        if denies_checksums(path):
            with path.open("r+b") as file:
                file.seek(RESERVED_AT)
                file.write(bytes([RESERVED_BYTES]))
                os.fsync(file.fileno())
            done.steps.append(f"byte {RESERVED_AT} of {path.name} was turned back: nothing of it is gone")
        if walk(path).damaged_at is not None:
            _rescue_log(path, aside / "trial", done)
        if faults_of(path):
            _rescue_pages(path, aside / "trial", done)
        shutil.rmtree(aside / "trial", ignore_errors=True)
        if lost := lost_commits(path):
            done.steps.append(
                f"the last {lost} transactions that {mark.name} counts are gone, and cannot be named"
            )
        # It tells of a log that is another one now.
        mark.unlink(missing_ok=True)
        fsync_folder(path.parent)
        if faults := faults_of(path):
            raise IntegrityError(f"{path} cannot be rescued: {faults[0]}. Its files are in {aside}.")
    return done


def _set_aside(path: Path, to: Path) -> None:
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in (path, wal_path(path)):
        if file.exists():
            shutil.copy2(file, to / file.name)


def _copied(path: Path, to: Path) -> Path:
    """Copies of the store's files in the folder `to`, for trying out repairs."""
    shutil.rmtree(to, ignore_errors=True)
    _set_aside(path, to)
    return to / path.name


# -- the log -------------------------------------------------------------------------------------------


def _rescue_log(path: Path, trial: Path, done: Rescued) -> None:
    log = wal_path(path)
    for _ in range(MAX_FLIPS):
        found = walk(path)
        if found.damaged_at is None:
            return
        if found.flip is None:
            break
        at, bit = found.flip
        contents = bytearray(log.read_bytes())
        contents[at] ^= 1 << bit
        replace_private_file(log, bytes(contents))
        done.steps.append(f"bit {bit} of byte {at} of {log.name} was turned back: nothing of it is gone")
    found = walk(path)
    if found.damaged_at is None:
        return
    through = _read_through(path, found, trial)
    # Where only the header was ruined there is nothing for the sums to go on from.
    proven = found.damaged_at == 0 or _proven(log.read_bytes(), found)
    if through is not None and proven and not faults_of(through):
        replace_private_file(log, wal_path(through).read_bytes())
        done.steps.append(
            f"{log.name} was sealed anew: every page in it that counts is proven, nothing of it is gone"
        )
        return
    later = states(through) if through is not None else {}
    _cut(log, found.committed_end)
    behind = f"{found.behind} transactions behind it are" if found.behind else "what stood behind it is"
    done.steps.append(f"{log.name} was cut at byte {found.committed_end}: {behind} gone")
    kept = states(_copied(path, trial))
    if later:
        done.lost += difference(later, kept)
    else:
        done.steps.append("which rows they held cannot be read any more")


def _proven(log: bytes, found: WalFinding) -> bool:
    """True if every page in the log, up to the end of what was acknowledged, is proven in the version that counts.

    Pages in a log have no checksum of their own, and are given one, right or wrong, on their way into the database. The
    sums that go on from frame to frame prove them.
    """
    first = found.damaged_at or HEADER_BYTES
    size = FRAME_HEADER_BYTES + int.from_bytes(log[8:12], "big")
    before = log[first - size + 16 : first - size + 24] if first > HEADER_BYTES else log[24:32]
    doubtful: set[bytes] = set()
    last_page = mended = b""
    for at in range(first, found.behind_end, size):
        frame = log[at : at + size]
        page, stored = frame[:4], frame[16:24]
        if mended and _sums(log, mended, frame) == stored:
            # Of the frame before, only its sums were hit: this one goes on from what they were.
            doubtful.discard(last_page)
            mended = b""
        else:
            sums = _sums(log, before, frame)
            mended = b"" if sums == stored else sums
        (doubtful.add if mended else doubtful.discard)(page)
        last_page, before = page, stored
    return not doubtful


def _sums(log: bytes, before: bytes, frame: bytes) -> bytes:
    """SQLite's sums behind a frame, going on from those behind the frame before."""
    words = struct.Struct(">II" if log[3] & 1 else "<II")
    first, second = struct.unpack(">II", before)
    for one, two in words.iter_unpack(frame[:8] + frame[FRAME_HEADER_BYTES:]):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return struct.pack(">II", first, second)


def _read_through(path: Path, found: WalFinding, trial: Path) -> Path | None:
    """A copy of the store whose log is read to its end, past the damaged frame."""
    log = wal_path(path).read_bytes()
    copy = _copied(path, trial)
    if found.damaged_at == 0:
        with path.open("rb") as file:
            page_size = file.read(_PAGE_SIZE_AT + 2)[_PAGE_SIZE_AT:]
        salts = log[HEADER_BYTES + 8 : HEADER_BYTES + 16]
        log = _MAGIC + bytes(2) + page_size + bytes(4) + salts + bytes(8) + log[HEADER_BYTES:]
        wal_path(copy).write_bytes(reseal_wal(log, HEADER_BYTES) + log[HEADER_BYTES:])
        found = walk(copy)
    if found.behind_end <= HEADER_BYTES:
        return None
    wal_path(copy).write_bytes(reseal_wal(log, found.behind_end))
    return copy


def _cut(log: Path, end: int) -> None:
    if end <= HEADER_BYTES:
        log.unlink()
        return
    with log.open("r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())


# -- pages ---------------------------------------------------------------------------------------------


def _rescue_pages(path: Path, trial: Path, done: Rescued) -> None:
    """Write every readable row into a new file, with checksums."""
    copy = _copied(path, trial)
    fresh = trial / "fresh.db"
    with store_errors(path):
        stretches, uncertain = doubtful(copy)
        source: Any = unchecked(copy)
        target: Any = connect(fresh)
        try:
            lost = _write_anew(source, target)
        finally:
            target.close()
            source.close()
    fresh.chmod(0o600)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    fresh.replace(path)
    done.steps.append(
        f"{path.name} was written anew: {len(uncertain)} rows stood on damaged pages, {lost} could not be kept"
    )
    # Rows that a damaged page hides altogether are within these as well.
    done.steps += [stretch.told() for stretch in stretches]
    done.stretches += stretches
    done.lost += uncertain


def _write_anew(source: Any, target: Any) -> int:
    """Copy every readable row; the number of rows that no table accepts."""
    refused = 0
    target.pragma("page_size", source.pragma("page_size"))
    with target:
        statements = schema(source)
        for kind, _, sql in statements:
            if kind == "table":
                target.execute(sql)
        for table in tables(source):
            if table == SEQUENCE:
                target.execute(f"DELETE FROM {SEQUENCE}")  # noqa: S608
            for _, row in rows(source, table):
                marks = ", ".join("?" * len(row))
                try:
                    target.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608
                except (apsw.ConstraintError, apsw.MismatchError):
                    refused += 1
        for kind, _, sql in statements:
            if kind != "table":
                target.execute(sql)
        for name in ("application_id", "user_version"):
            target.pragma(name, source.pragma(name))
    return refused
