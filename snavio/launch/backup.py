"""Copies every store of an installation into a folder while the mesh runs, reads the copies through, and signs off with
a manifest of their hashes.

Never calls a backup done whose copies were not read, and never leaves the manifest of an unfinished one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.adapters.embedded.keystore_check import check_key_store
from snavio.adapters.embedded.mailbox_copy import CopiedMailbox, copy_mailbox
from snavio.adapters.embedded.store_copy import copy_database, settle
from snavio.clock import Clock
from snavio.durable_files import replace_private_file
from snavio.errors import IntegrityError, StateError, Unavailable
from snavio.launch.state import StateFolder
from snavio.launch.stores import FOLDERS, KEYS_PLACE, LEFT_OUT, SEALING_KEY_PLACE, STORES

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
ATTEMPTS: Final = 10
PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that is whole."""

    folder: Path
    begun_unix_ns: int
    ended_unix_ns: int
    files: dict[str, tuple[int, str]]
    """Size and SHA-256 by place."""
    stores: tuple[str, ...]
    mailbox: CopiedMailbox = field(default_factory=CopiedMailbox)
    notes: tuple[str, ...] = ()
    """Sentences about parts of the installation that are not in it."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def make(state: Path, folder: Path, *, clock: Clock, tell: Callable[[str], None]) -> Backup:
    """Back the installation in `state` up into `folder`, which is empty or not there."""
    if not (state / KEYS_PLACE).exists():
        raise StateError(
            f"{state} is no state folder of a mesh: there is nothing to back up.", reason="no-state"
        )
    # Half a restore would leave stores of two times, with epochs that were not renewed.
    StateFolder(state).check_format()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StateError(f"{folder} is not empty: name a new folder for the backup.", reason="not-empty")
    except OSError as error:
        raise StateError(f"{folder} cannot be used: {error.strerror}.", reason="unwritable-backup") from None
    begun = clock.unix_ns()
    stores: list[str] = []
    notes: list[str] = []
    mailbox = CopiedMailbox()
    for store in STORES:
        source, target = store.path(state), folder / store.place
        if not source.exists():
            notes.append(f"There is no {store.place}: {store.holds} are kept elsewhere, or not at all.")
            continue
        tell(store.name)
        try:
            if store.name == "mailbox":
                mailbox = copy_mailbox(source, target)
            else:
                copy_database(source, target)
            settle(target)
        except Unavailable as error:
            # Of a file here, not of the mesh.
            raise StateError(f"The backup was not made: {error}", reason="unwritable-backup") from error
        stores.append(store.name)
    tell("certificates and files")
    for name in FOLDERS:
        _copy_files(state / name, folder / name)
    tell("keys")
    notes += _copy_keys(state, folder)
    if mailbox.damaged:
        notes.append(f"{mailbox.damaged} batches of the mailbox are damaged there, and so in the backup.")
    files = {place: hashed(folder / place, sync=True) for place in _places(folder)}
    made = Backup(folder, begun, clock.unix_ns(), files, (*stores, "keys"), mailbox, tuple(notes))
    replace_private_file(folder / MANIFEST, _document(made))
    return made


def read(folder: Path) -> Backup:
    """The backup in `folder`, every file of it hashed again. IntegrityError names the file that changed."""
    try:
        found = orjson.loads((folder / MANIFEST).read_bytes())
        if found["format"] > FORMAT:
            raise StateError(f"{folder} was made by a newer Snavio.", reason="newer-backup")
        files = {str(place): (int(size), str(digest)) for place, (size, digest) in found["files"].items()}
        backup = Backup(
            folder,
            int(found["begun_unix_ns"]),
            int(found["ended_unix_ns"]),
            files,
            tuple(found["stores"]),
            notes=tuple(found["notes"]),
        )
    except FileNotFoundError:
        raise StateError(
            f"{folder} has no {MANIFEST}: it is no backup, or one that was not finished.", reason="no-backup"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(f"{folder / MANIFEST} is damaged.") from None
    for place, expected in files.items():
        if ".." in Path(place).parts or Path(place).is_absolute():
            raise IntegrityError(f"{folder / MANIFEST} names a file outside of the backup.")
        try:
            if hashed(folder / place) != expected:
                raise IntegrityError(f"{folder / place} is not what was backed up: its hash differs.")
        except OSError as error:
            raise IntegrityError(f"{folder / place} cannot be read: {error.strerror}.") from None
    return backup


def _document(made: Backup) -> bytes:
    document: dict[str, Any] = {
        "format": FORMAT,
        "begun_unix_ns": made.begun_unix_ns,
        "ended_unix_ns": made.ended_unix_ns,
        "stores": made.stores,
        "notes": made.notes,
        "files": made.files,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def _copy_keys(state: Path, folder: Path) -> list[str]:
    """Signer's sealed store, after everything that may refer to a key. Each write replaces it: one read is whole."""
    sealed = folder / KEYS_PLACE
    _copy(state / KEYS_PLACE, sealed)
    sealed.chmod(0o600)
    try:
        check_key_store(sealed, sealing_key=folder / SEALING_KEY_PLACE)
    except StateError:
        return [
            "The sealing key is not in the state folder: keep a copy of it, or the keys cannot be opened."
        ]
    return []


def _copy_files(source: Path, target: Path) -> None:
    """Small files and links: certificates, journals, counters. Each is replaced as a whole while the mesh runs."""
    for _ in range(ATTEMPTS):
        try:
            if source.is_dir():
                shutil.copytree(
                    source, target, symlinks=True, dirs_exist_ok=True, ignore=_left_out, copy_function=_copy
                )
                _require_links(target)
            return
        except (FileNotFoundError, shutil.Error):
            # A certificate was renewed meanwhile: its old folder is gone, or its new one was not there yet.
            continue
    raise StateError(f"{source} changes faster than it can be copied.", reason="unstable-state")


def _copy(source: str | Path, target: str | Path) -> None:
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        raise
    except OSError as error:
        # A full disk does not pass with another attempt.
        raise StateError(
            f"The backup was not made: {source} cannot be copied to {target}: {error.strerror}.",
            reason="unwritable-backup",
        ) from None


def _require_links(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.exists():
            path.unlink()
            raise FileNotFoundError(path)


def _left_out(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name.endswith(LEFT_OUT) or name == Path(KEYS_PLACE).name}


def _places(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(folder))


def hashed(path: Path, *, sync: bool = False) -> tuple[int, str]:
    """Size and SHA-256; with `sync`, on disk from here on."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            size += len(piece)
        if sync:
            os.fsync(file.fileno())
    return size, digest.hexdigest()
