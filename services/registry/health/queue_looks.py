"""Looks at each kind of queue that the installation has set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.registry.health.mailbox_looks import MailboxLooks
from snavio.domain.directory import QueueKind
from snavio.ports.queue_looks import QueueLooks
from snavio.rpc.capability_request import watcher
from snavio.wiring import foreign_queue_looks

if TYPE_CHECKING:
    from snavio.host.service import ServiceHost


def queue_looks(host: ServiceHost) -> dict[QueueKind, QueueLooks]:
    """By kind of queue; the mailbox's under Registry's right to its counts."""
    mailbox: QueueLooks = MailboxLooks(host.channel("mailbox", capability=watcher), clock=host.clock)
    return {QueueKind.MAILBOX: mailbox, **foreign_queue_looks(host.mesh, clock=host.clock)}
