"""Opens SQLite files with a checksum on every page, which is verified when the page is read.

SQLite itself accepts a page with a flipped bit: a counter that reads 0 silently hides a message. Its checksum VFS keeps
eight bytes at the end of every page for that, from the file's first write on. Never opens a file that has them without
the VFS, which would write pages that look damaged afterwards.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import apsw
import apsw.sqlite_extra
import structlog

from snavio.errors import IntegrityError, StateError

RESERVED_BYTES = 8
_VFS = "cksmvfs"
RESERVED_AT = 20
"""Offset in a file's header of the number of reserved bytes at the end of a page."""
_PAGE_SIZE_AT = 16
_LEAST_PAGE = 512
_loading = threading.Lock()


def connect(path: Path, *, flags: int | None = None) -> Any:
    """A connection to the file at `path`: with checksums if it has them, or is empty and may get them.

    StateError for a file with checksums where SQLite's extension for them is missing; IntegrityError for one whose
    header denies the checksums that its first page has.
    """
    if flags is None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    reserved = reserved_bytes(path)
    if reserved not in (None, RESERVED_BYTES):
        # Opened without them, every other fault would go unnoticed, and every write would look like one.
        if reserved or denies_checksums(path):
            raise IntegrityError(f"{path} is damaged: its header denies its checksums.")
        return apsw.Connection(str(path), flags=flags)
    if available():
        connection: Any = apsw.Connection(str(path), flags=flags, vfs=_VFS)
        if reserved is None:
            # Before its first page: later they could be had by writing the whole file anew only.
            connection.reserve_bytes("main", RESERVED_BYTES)
        return connection
    if reserved is None:
        structlog.get_logger().warning("pages will have no checksums", path=str(path))
        return apsw.Connection(str(path), flags=flags)
    raise StateError(
        f"{path} has checksums, and SQLite's extension that keeps them is not installed here.",
        reason="no-checksums",
    )


def denies_checksums(path: Path) -> bool:
    """True if the first page ends with a valid checksum, but the header does not declare one."""
    with path.open("rb") as file:
        header = file.read(_PAGE_SIZE_AT + 2)
        size = int.from_bytes(header[_PAGE_SIZE_AT:], "big")
        page = bytearray(header + file.read(size - len(header))) if size >= _LEAST_PAGE else bytearray()
    if len(page) != size or not size or page[RESERVED_AT] == RESERVED_BYTES:
        return False
    page[RESERVED_AT] = RESERVED_BYTES
    first = second = 0
    for one, two in struct.iter_unpack("<II", page[:-RESERVED_BYTES]):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return struct.pack("<II", first, second) == page[-RESERVED_BYTES:]


def available() -> bool:
    """True if SQLite's checksum extension is available here."""
    with _loading:
        # Asked and not remembered: tests put other files under it, and take them away again.
        if _VFS in apsw.vfs_names():
            return True
        before = apsw.vfs_names()[0]
        door = apsw.Connection(":memory:")
        try:
            apsw.sqlite_extra.load(door, "cksumvfs")
        except (apsw.sqlite_extra.NotAvailable, apsw.ExtensionLoadingError):
            return False
        finally:
            door.close()
        # It makes itself the default for whatever this process opens.
        apsw.set_default_vfs(before)
        return True


def reserved_bytes(path: Path) -> int | None:
    """Reserved bytes of every page; None before the first page is written."""
    try:
        with path.open("rb") as file:
            header = file.read(RESERVED_AT + 1)
    except FileNotFoundError:
        return None
    return header[RESERVED_AT] if len(header) > RESERVED_AT else None
