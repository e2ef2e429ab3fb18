"""Chooses adapters: the only place that knows which implementation stands behind a port.

Never holds a rule of the product.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.transport.channel import MeshChannel
from snavio.transport.link import BatchLink


def mailbox_queue(mailbox: MeshChannel, *, clock: Clock, instance: str, epoch: int) -> BatchLink:
    """The built-in target queue. It recognises a batch that it has stored, so an unanswered one is sent again."""
    return BatchLink(
        mailbox, "/snavio.v1.Mailbox/SendStream", clock=clock, instance=instance, epoch=epoch, resend=True
    )
