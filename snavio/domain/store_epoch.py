"""Distinguishes a store that kept its records from one that came back without them.

A store that is found empty gets an epoch: a name, and the time from which it remembers. A caller that has seen another
epoch proves that records were lost; a store that no caller has seen before has lost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class StoreEpoch:
    """One history of a store."""

    name: str
    born_ms: int
    """On the store's clock; earlier events are unknown. 0: there were none."""


def met(found: StoreEpoch | None, *, known: str | None, fresh_name: str, now_ms: int) -> StoreEpoch:
    """The epoch in force, given the store's epoch and the one that the caller has seen."""
    if found is None:
        return StoreEpoch(fresh_name, now_ms if known is not None else 0)
    # An instance that had never seen the store created this epoch as that of a new one; the caller has seen an earlier
    # epoch.
    if known is not None and known != found.name and found.born_ms == 0:
        return replace(found, born_ms=now_ms)
    return found
