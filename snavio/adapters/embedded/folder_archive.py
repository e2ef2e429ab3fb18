"""An archive in a folder, with one file per name.

Never leaves a name half-written: a file is written and synced under another name, then renamed. A name cannot
lead out of the folder, and a link inside it is not followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from snavio.durable_files import fsync_folder, replace_private_file, write_durably
from snavio.errors import BadRequest, Conflict, NotFound, Saturated, Unavailable
from snavio.host.store_worker import StoreWorker
from snavio.ports.archive import StoredObject

_NAME = re.compile(r"[a-z0-9][a-z0-9._=-]{0,127}(?:/[a-z0-9_][a-z0-9._=-]{0,127}){0,7}")
_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{16}\.new")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
TIMEOUT_S = 60.0


class FolderArchive:
    """An `Archive`; the files are private to their owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._worker = StoreWorker("archive", max_waiting=64, timeout_s=TIMEOUT_S)

    async def put(self, name: str, contents: bytes) -> None:
        path = self._path(name)
        await self._worker.run(lambda: self._put(path, contents))

    async def swap(self, name: str, contents: bytes, *, expected: bytes | None) -> None:
        path = self._path(name)
        most = len(expected or b"") + 1

        def compare_and_put() -> None:
            with self._locked():
                try:
                    present: bytes | None = _read(path, most)
                except (NotFound, Saturated) as error:
                    present = None if isinstance(error, NotFound) else b""
                    differs = not isinstance(error, NotFound)
                else:
                    differs = False
                if differs or present != expected:
                    raise Conflict(f"{name} was replaced by somebody else.", reason="replaced")
                self._put(path, contents)

        await self._worker.run(compare_and_put)

    async def get(self, name: str, *, max_bytes: int) -> bytes:
        path = self._path(name)
        return await self._worker.run(lambda: _read(path, max_bytes))

    async def names(self, prefix: str) -> list[StoredObject]:
        folder = self._path(prefix)
        return await self._worker.run(lambda: list(self._names(folder)))

    async def folders(self, prefix: str) -> list[str]:
        folder = self._path(prefix)

        def inside() -> list[str]:
            with _storage_errors(prefix):
                try:
                    found = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
                except FileNotFoundError:
                    return []
            return sorted(
                f"{prefix}/{entry.name}" for entry in found if _NAME.fullmatch(f"{prefix}/{entry.name}")
            )

        return await self._worker.run(inside)

    async def drop(self, prefix: str) -> None:
        folder = self._path(prefix)

        def remove() -> None:
            with _storage_errors(prefix):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    return
                except OSError as error:
                    if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                        return
                    raise
                fsync_folder(folder.parent)

        await self._worker.run(remove)

    async def delete(self, name: str) -> None:
        path = self._path(name)

        def remove() -> None:
            with _storage_errors(name):
                path.unlink(missing_ok=True)

        await self._worker.run(remove)

    async def sweep(self, prefix: str) -> int:
        folder = self._path(prefix)
        return await self._worker.run(lambda: self._sweep(folder))

    async def close(self) -> None:
        await self._worker.close(lambda: None)

    def _path(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None or ".." in name:
            raise BadRequest("An archive's name is a short relative path.", reason="bad-name")
        return self._folder / name

    # -- on the worker's thread ------------------------------------------------------------------------

    def _put(self, path: Path, contents: bytes) -> None:
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
        with _storage_errors(path.name):
            _make_private(path.parent)
            try:
                write_durably(fresh, contents)
                fresh.replace(path)
            except BaseException:
                # A file that did not fit must not keep the disk full.
                with contextlib.suppress(OSError):
                    fresh.unlink(missing_ok=True)
                raise
            fsync_folder(path.parent)

    def _names(self, folder: Path) -> Iterator[StoredObject]:
        with _storage_errors(folder.name):
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                return
            for entry in entries:
                if _UNFINISHED.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                path = Path(entry.path).relative_to(self._folder).as_posix()
                yield StoredObject(path, entry.stat(follow_symlinks=False).st_size)

    def _sweep(self, folder: Path) -> int:
        with _storage_errors(folder.name):
            left = [path for path in folder.rglob(".*.new") if _UNFINISHED.fullmatch(path.name)]
            for path in left:
                path.unlink(missing_ok=True)
            return len(left)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder, so that writers of all processes compare and replace one after the other."""
        with _storage_errors("the archive's lock"):
            _make_private(self._folder)
            descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)


class FileWatermark:
    """A `Watermark` in a file; a file longer than `max_bytes` is refused as not its own."""

    def __init__(self, path: Path, *, max_bytes: int = 4096) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def read(self) -> bytes | None:
        try:
            return _read(self._path, self._max_bytes)
        except NotFound:
            return None
        except Saturated:
            return b""

    def keep(self, contents: bytes) -> None:
        with _storage_errors(self._path.name):
            _make_private(self._path.parent)
            replace_private_file(self._path, contents)


def _make_private(folder: Path) -> None:
    """Create every missing folder with mode 0700; `mkdir` would leave the parents readable by others."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        fsync_folder(folder.parent)


def _read(path: Path, max_bytes: int) -> bytes:
    with _storage_errors(path.name):
        try:
            # Neither a link to somewhere else nor a pipe that never ends.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise NotFound(f"The archive has no {path.name}.") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise NotFound(f"{path.name} is not a file.")
            if status.st_size > max_bytes:
                raise Saturated(
                    f"{path.name} is larger than {max_bytes} bytes.", retry_after_ms=0, reason="oversized"
                )
            return file.read(max_bytes)


@contextlib.contextmanager
def _storage_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "archive-full" if error.errno in _FULL else "unavailable"
        what = errno.errorcode.get(error.errno or 0, "?")
        raise Unavailable(f"{name} cannot be read or written: {what}.", reason=reason) from error
