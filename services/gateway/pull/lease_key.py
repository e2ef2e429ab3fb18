"""The key of lease ids, in a file beside the edge's other state.

Never replaced by itself: leases that stand outlive a restart of the edge.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from snavio.durable_files import fsync_folder, write_durably
from snavio.edge.lease_ids import KEY_BYTES
from snavio.errors import StateError

KEY_FILE: Final = "lease.key"


def lease_key(folder: Path) -> bytes:
    """The key in a folder, made at the first start; edges behind one balancer get a copy of the file."""
    path = folder / KEY_FILE
    if not path.exists():
        fresh = folder / f".{KEY_FILE}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        write_durably(fresh, os.urandom(KEY_BYTES))
        try:
            os.link(fresh, path)  # the first of two that start at once wins
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        fsync_folder(folder)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise StateError(
            f"{path} is no lease key: delete it, and leases that stand now will expire.", reason="bad-key"
        )
    return key
