"""The system calls that stored bytes depend on, in one place that a test can replace.

Never retries and never translates errors: the caller decides what a failure means.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from snavio.durable_files import fsync_folder

Buffer = bytes | memoryview


class Disk(Protocol):
    """Each method is one call and raises its OSError. Long calls release the GIL."""

    def create(self, path: Path) -> int:
        """Create a private file; its descriptor. The name is durable after `sync_folder`."""
        ...

    def take_over(self, path: Path, name: Path) -> int:
        """Rename the file at `path` to `name`; its descriptor. Durable after `sync_folder`."""
        ...

    def open(self, path: Path) -> int:
        """A descriptor for reading."""
        ...

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all buffers at an offset; the number of bytes written, which may be fewer."""
        ...

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        """Read at an offset; fewer bytes than asked for at the end of the file."""
        ...

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate the file to a length."""
        ...

    def sync(self, descriptor: int) -> None:
        """fsync the file: all that was written to it is durable."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """fsync the folder: names created in it are durable."""
        ...

    def remove(self, path: Path) -> None:
        """Unlink the name; durable only after `sync_folder`."""
        ...

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        ...

    def uncache(self, path: Path) -> None:
        """Drop the file from the page cache, since it will not be read soon; pages that are not synced stay."""
        ...

    def free_bytes(self, folder: Path) -> int:
        """Bytes that this process may still write on the file system of `folder`."""
        ...


class SystemDisk:
    """The `Disk` of the operating system."""

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
