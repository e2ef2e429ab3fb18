"""Reads and writes a Hookaidofile: within a bound, and whole or not at all.

Never leaves half of a file behind, and never writes over one that is there unless it was read before.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from snavio.edge.lexer import MOST_BYTES


def read_file(path: Path) -> bytes:
    """The bytes of a file, one more than a Hookaidofile may have at the most; raises OSError."""
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def replace_file(path: Path, text: str) -> None:
    """Replace a file, with its permissions, in one step that is on disk afterwards."""
    target = path.resolve()
    mode = target.stat().st_mode
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), mode & 0o7777)
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def create_file(path: Path, text: str) -> None:
    """Write a new file; raises FileExistsError when one is there."""
    with path.open("x", encoding="utf-8", newline="") as file:
        file.write(text)
