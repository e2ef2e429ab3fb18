"""Promises of each kind of target queue beyond storing a command before it answers.

Never aspirational: the contract suite holds every adapter to the traits of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from snavio.domain.directory.route import QueueKind


@dataclass(frozen=True, slots=True)
class Traits:
    """The promises of one kind of queue."""

    recognises_resends: bool
    """A batch that is sent again because its answer was lost is stored once."""
    stores_once: bool
    """Stores (source, id) once within the replay window by itself; for other kinds Slow claims the id first."""
    keeps_order: bool
    """Commands of one batch part are received in the order in which they were sent."""
    bounded: bool
    """Has a capacity of its own and refuses beyond it; otherwise the provider's bound is the only one."""
    max_message_bytes: int
    """Most bytes of a command with its envelope; 0 for no limit but the mesh's own."""


TRAITS: Final[Mapping[QueueKind, Traits]] = MappingProxyType(
    {
        QueueKind.MAILBOX: Traits(
            recognises_resends=True, stores_once=True, keeps_order=True, bounded=True, max_message_bytes=0
        ),
        QueueKind.REDIS: Traits(
            recognises_resends=True, stores_once=False, keeps_order=True, bounded=True, max_message_bytes=0
        ),
        # Base64 makes three bytes into four, and the envelope's attributes count too.
        QueueKind.SQS: Traits(
            recognises_resends=False,
            stores_once=False,
            keeps_order=False,
            bounded=False,
            max_message_bytes=(262_144 - 1024) // 4 * 3,
        ),
    }
)
