"""Bytes of stored batches by tenant, kept beside the store that counts them.

Never holds a tenant without bytes: the table is bounded by what is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping


class TenantBytes:
    """Any thread."""

    def __init__(self, held: Iterable[tuple[str, int]] = ()) -> None:
        self._counting = threading.Lock()
        self._held: dict[str, int] = {}
        self.change(held)

    def change(self, changes: Iterable[tuple[str, int]]) -> None:
        """(topic, bytes more or fewer)."""
        with self._counting:
            for topic, size in changes:
                tenant = topic.partition("/")[0]
                held = self._held.get(tenant, 0) + size
                if held > 0:
                    self._held[tenant] = held
                else:
                    self._held.pop(tenant, None)

    @property
    def held(self) -> Mapping[str, int]:
        """By tenant; it changes."""
        return self._held
