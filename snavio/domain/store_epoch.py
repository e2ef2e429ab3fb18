"""Tells a store that has always been there from one that came back without its memory.

A store that is found empty gets an epoch: a name, and from when on it remembers. Whoever has known another epoch is
proof that something was forgotten; a store that nobody has known before has forgotten nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class StoreEpoch:
    """One memory of a store."""

    name: str
    born_ms: int
    """On the store's clock; what happened before is not known. 0: nothing happened before."""


def met(found: StoreEpoch | None, *, known: str | None, fresh_name: str, now_ms: int) -> StoreEpoch:
    """The epoch that holds from now on, given what the store says and what the caller has known."""
    if found is None:
        return StoreEpoch(fresh_name, now_ms if known is not None else 0)
    # A newcomer made it and thought that the store was new; the caller knows better.
    if known is not None and known != found.name and found.born_ms == 0:
        return replace(found, born_ms=now_ms)
    return found
