"""Notes beside a store of streams how many appends were committed, so that an older copy of the store is known as one.

Never ahead of a synced commit, and never synced itself: after a power cut it may be behind, and then finds less.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import Final

_FORM: Final = struct.Struct(">4sQ")
_CHECK: Final = struct.Struct(">I")
_MAGIC: Final = b"snv1"


class AppendsMark:
    """The mark of one store; its owner holds the store's lock."""

    def __init__(self, store: Path) -> None:
        path = store.with_name(store.name + "-mark")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """The number of appends; 0 without a mark, and for a damaged one."""
        found = os.pread(self._file, _FORM.size + _CHECK.size + 1, 0)
        form = found[: _FORM.size]
        if len(found) != _FORM.size + _CHECK.size or found[_FORM.size :] != _CHECK.pack(zlib.crc32(form)):
            return 0
        magic, appends = _FORM.unpack(form)
        return int(appends) if magic == _MAGIC else 0

    def write(self, appends: int) -> None:
        """Note a commit that is durable. Its failure is passed over: the mark before it is true as well."""
        form = _FORM.pack(_MAGIC, appends)
        with contextlib.suppress(OSError):
            os.pwrite(self._file, form + _CHECK.pack(zlib.crc32(form)), 0)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
