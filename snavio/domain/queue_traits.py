"""What each kind of target queue can promise beyond storing a command before it answers.

Never a wish: the contract suite holds every adapter to the traits of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from snavio.domain.directory.route import QueueKind


@dataclass(frozen=True, slots=True)
class Traits:
    """What may be relied on."""

    recognises_resends: bool
    """A delivery that was repeated because its answer got lost is stored once."""
    stores_once: bool
    """Keeps (source, id) once within the replay window by itself; elsewhere Slow claims it first."""
    keeps_order: bool
    """Commands of one consignment come out in the order in which they went in."""
    bounded: bool
    """Has a capacity of its own and refuses beyond it; elsewhere the provider's bound is the only one."""
    max_message_bytes: int
    """A command with its envelope may be this long; 0 leaves it to the mesh's own limits."""


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
