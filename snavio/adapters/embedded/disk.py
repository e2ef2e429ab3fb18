"""The calls to the system that stored bytes depend on, in one place that a test can stand in for.

Never retries and never translates: who calls decides what a failure means.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from snavio.adapters.embedded.files import fsync_folder

Buffer = bytes | memoryview


class Disk(Protocol):
    """Each method is one call and raises its OSError. Long ones let go of the interpreter's lock."""

    def create(self, path: Path) -> int:
        """A descriptor of a new private file; its name is durable after `sync_folder`."""
        ...

    def take_over(self, path: Path, name: Path) -> int:
        """A descriptor of the file at `path`, which is called `name` from now on; durable after `sync_folder`."""
        ...

    def open(self, path: Path) -> int:
        """A descriptor for reading."""
        ...

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        """How many bytes of all buffers were written there; may be fewer than asked for."""
        ...

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        """Fewer bytes than asked for at the end of the file."""
        ...

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file off."""
        ...

    def sync(self, descriptor: int) -> None:
        """What was written is durable."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Names created in it are durable."""
        ...

    def remove(self, path: Path) -> None:
        """The name is gone, if only until a power cut."""
        ...

    def close(self, descriptor: int) -> None:
        """The descriptor is gone."""
        ...

    def uncache(self, path: Path) -> None:
        """Nobody is expected to read the file soon; what of it is not synced stays cached."""
        ...

    def free_bytes(self, folder: Path) -> int:
        """What the file system that `folder` is on has left for us."""
        ...


class SystemDisk:
    """The operating system's."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def take_over(self, path: Path, name: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            path.rename(name)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        return os.pwritev(descriptor, buffers, offset)

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        return os.pread(descriptor, length, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        fsync_folder(folder)

    def remove(self, path: Path) -> None:
        path.unlink()

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def uncache(self, path: Path) -> None:
        descriptor = self.open(path)
        try:
            if hasattr(os, "posix_fadvise"):  # not on macOS
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def free_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize
