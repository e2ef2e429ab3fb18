"""Holds verified files while a job reads them: compaction may take them out of the archive meanwhile.

Never changes a file, and never copies one where a second name for it will do.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Final

_NO_LINKS: Final = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


class Pins:
    """Second names of files, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pin(self, hour: str, path: Path) -> Path:
        """Where to read `path` from now on. FileNotFoundError when it is gone already."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # `telemetry/date=2026-11-16/hour=05`: names of two hours must not meet.
        held = self._folder / f"{hour.removeprefix('telemetry/').replace('/', '.')}.{path.name}"
        found = path.stat()
        try:
            if os.path.samestat(held.stat(), found):
                return held
            held.unlink()  # An older file of that name.
        except FileNotFoundError:
            pass
        try:
            os.link(path, held, follow_symlinks=False)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._copy(path, held)
        return held

    @staticmethod
    def _copy(path: Path, held: Path) -> None:
        fresh = held.with_name(f".{held.name}.{os.getpid()}")
        shutil.copyfile(path, fresh)
        fresh.replace(held)

    def release(self, *, keep: set[str] | None = None) -> None:
        """Let go of all but those names."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if keep is None or path.name not in keep:
                    path.unlink(missing_ok=True)
