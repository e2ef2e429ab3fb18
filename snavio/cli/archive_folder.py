"""The folder that a command takes for an archive.

Never takes any folder for one: a mistyped name must not look like an archive in which nothing happened.
"""

from __future__ import annotations

from pathlib import Path

from snavio.errors import BadRequest


def archive_folder(folder: Path) -> Path:
    """`folder`, if it is an archive or empty; otherwise BadRequest."""
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "telemetry").is_dir()):
        raise BadRequest(
            f"{folder} is not an archive: that is a folder with a folder `telemetry` in it.",
            reason="no-archive",
        )
    return folder
