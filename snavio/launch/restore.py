"""Puts a backup in the place of an installation's stores, with new epochs, and the old ones aside.

Never touches anything before the backup is read through, never deletes what was there, and never lets a mesh start on
a folder in which a restore has not ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.adapters.embedded.sqlite import StoreLock
from snavio.adapters.embedded.store_renewal import renew, require_known
from snavio.clock import Clock
from snavio.durable_files import fsync_folder
from snavio.errors import IntegrityError, StateError
from snavio.launch.backup import Backup, hashed, read
from snavio.launch.processes import MeshProcesses
from snavio.launch.state import RESTORING_FILE, StateFolder
from snavio.launch.stores import FOLDERS, KEYS_PLACE, STORES

FRESH: Final = ".restored"
DERIVED: Final = ("snapshots",)
"""Made again from the stores; those of the lost time must not be read."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore that has ended."""

    backup: Backup
    aside: Path | None
    """The stores that were there before."""


def restore(folder: Path, processes: MeshProcesses, *, clock: Clock, tell: Callable[[str], None]) -> Restored:
    """Bring the backup in `folder` back into the state folder of `processes`, on which no mesh runs."""
    tell("reading the backup")
    backup = read(folder)
    state = StateFolder(processes.state_dir)
    state.check_writable()
    with state.claimed():
        _require_stopped(state.path)
        fresh = state.path / FRESH
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            tell("copying")
            _copy(backup, fresh)
            tell("renewing epochs")
            for store in STORES:
                if (path := store.path(fresh)).exists():
                    require_known(path, store.place)
                    renew(path, store.place, now_ns=clock.unix_ns())
        except BaseException:
            # Nothing was exchanged yet: the mesh that was there can still start, and needs the room.
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        (state.path / RESTORING_FILE).write_bytes(b"{}\n")
        fsync_folder(state.path)
        aside = _exchange(state.path, fresh, name=f"before-restore-{clock.unix_ns() // 1_000_000_000}")
        # The key store's epoch, and certificates that ended since.
        processes.prepare(restored=True)
        (state.path / RESTORING_FILE).unlink()
        fsync_folder(state.path)
    return Restored(backup, aside)


def _copy(backup: Backup, fresh: Path) -> None:
    """The files that the manifest vouches for and the links, durably; whatever else was put beside them stays there."""
    try:
        fresh.mkdir(mode=0o700)
        for path in sorted(backup.folder.rglob("*")):
            place = path.relative_to(backup.folder)
            target = fresh / place
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif path.is_dir():
                target.mkdir(mode=0o700)
            elif (expected := backup.files.get(str(place))) is not None:
                shutil.copy2(path, target)
                if hashed(target, sync=True) != expected:
                    raise IntegrityError(f"{target} is not what was backed up: its hash differs.")
        for folder in (
            fresh,
            *(path for path in fresh.rglob("*") if path.is_dir() and not path.is_symlink()),
        ):
            fsync_folder(folder)
    except OSError as error:
        raise StateError(
            f"The backup cannot be copied to {fresh}: {error.strerror}. Nothing was changed.",
            reason="unwritable-state",
        ) from None


def _require_stopped(state: Path) -> None:
    """A service that runs by itself holds the lock of its store."""
    for place in (*(store.place for store in STORES), KEYS_PLACE):
        if (state / place).exists():
            try:
                StoreLock(state / place).release()
            except StateError:
                raise StateError(
                    f"{state / place} is in use: stop the mesh first, `snavio down`.", reason="store-locked"
                ) from None


def _exchange(state: Path, fresh: Path, *, name: str) -> Path | None:
    """Old folders aside, new ones in their place; after a crash in between, a second run goes on from there."""
    # A clock that was set back, or two within a second: what lies aside already is not mixed up.
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    aside = next(state / one for one in names if not (state / one).exists())
    for folder in (*FOLDERS, *DERIVED):
        if (state / folder).exists():
            aside.mkdir(mode=0o700, exist_ok=True)
            (state / folder).rename(aside / folder)
        if (fresh / folder).exists():
            (fresh / folder).rename(state / folder)
    fsync_folder(state)
    shutil.rmtree(fresh)
    return aside if aside.exists() else None
