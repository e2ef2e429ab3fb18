"""Files that a power cut leaves whole.

Never leaves a private file readable by others, not even for a moment.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, contents: bytes, *, mode: int = 0o600) -> None:
    """Write a file that does not exist yet; its name is durable after `fsync_folder`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    """Makes names created or renamed in `folder` durable; a file's own fsync does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_private_file(path: Path, contents: bytes) -> None:
    """Replace `path`, mode 0600, durably. One writer at a time: the caller holds a lock.

    A reader, or a power cut, finds the old file or the new one and nothing else.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    write_durably(fresh, contents)
    fresh.replace(path)
    fsync_folder(path.parent)
