"""Finds the valid files of an hour: those that manifests list and no manifest replaces.

Checks only the form of a manifest: never act on a file without checking its signature too.
"""

from __future__ import annotations

import structlog

from snavio.errors import NotFound, SnavioError
from snavio.ports.archive import Archive
from snavio.signed.archive_manifest import (
    MAX_MANIFEST_BYTES,
    ArchiveManifest,
    BadManifest,
    FileEntry,
    folder_of,
    present,
    read_manifest,
)


async def present_files(archive: Archive, hour_unix_ns: int) -> dict[str, FileEntry]:
    """Files of the hour by their path in the archive."""
    folder = folder_of(hour_unix_ns)
    return {f"{folder}/{entry.name}": entry for entry in present(await manifests(archive, folder))}


async def manifests(archive: Archive, folder: str) -> list[ArchiveManifest]:
    """The folder's manifests that can be read, by number."""
    found = []
    for stored in await archive.names(folder):
        if not stored.name.rpartition("/")[2].startswith("_manifest-"):
            continue
        try:
            found.append(read_manifest(await archive.get(stored.name, max_bytes=MAX_MANIFEST_BYTES))[0])
        except NotFound:
            continue  # Compacted meanwhile.
        except (BadManifest, SnavioError) as error:
            structlog.get_logger().warning("a manifest cannot be read", name=stored.name, message=str(error))
    return sorted(found, key=lambda manifest: manifest.number)
