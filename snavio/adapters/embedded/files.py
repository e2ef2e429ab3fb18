"""Writes a private file so that a reader, or a power cut, finds the old one or the new one and nothing else.

Never leaves a private file readable by others, not even for a moment.
"""

from __future__ import annotations

import os
from pathlib import Path


def fsync_folder(folder: Path) -> None:
    """Makes names created or renamed in `folder` durable; a file's own fsync does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_private_file(path: Path, contents: bytes) -> None:
    """Replace `path`, mode 0600, durably. One writer at a time: the caller holds a lock."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    fsync_folder(path.parent)
