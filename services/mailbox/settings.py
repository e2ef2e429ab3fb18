"""What an operator may set for the mailbox."""

from __future__ import annotations

from pydantic import Field

from services.mailbox.topics import Limits
from snavio.config import Section


class MailboxSettings(Section):
    """The mailbox stores what was delivered until a consumer acknowledges it: its bounds, and whether it remembers."""

    amnesia: bool = Field(
        default=False,
        description="Keep messages in memory only: fast, and a restart forgets all of them. Needs "
        "i_accept_losing_messages.",
    )
    i_accept_losing_messages: bool = Field(default=False, description="The second word for amnesia.")
    max_store_bytes: int = Field(
        default=64 << 30, ge=1 << 20, le=1 << 46, description="Size at which the store takes no more."
    )
    max_topics: int = Field(default=10_000, ge=1, le=10_000_000, description="Topics that may exist.")
    max_topic_messages: int = Field(
        default=1_000_000,
        ge=1,
        le=1_000_000_000_000,
        description="Messages of one topic, ready and leased; beyond it, senders are refused as saturated.",
    )
    max_inflight: int = Field(
        default=200_000, ge=1, le=1_000_000_000, description="Leased messages of all topics together."
    )
    window_batches: int = Field(
        default=1024,
        ge=16,
        le=65_536,
        description="Ready batches of one topic in memory; the rest waits on disk.",
    )
    max_visibility_ms: int = Field(
        default=43_200_000, ge=250, le=604_800_000, description="Longest lease that a consumer may ask for."
    )
    max_delay_ms: int = Field(
        default=43_200_000, ge=0, le=604_800_000, description="Longest delay that a NACK may ask for."
    )
    max_wait_ms: int = Field(
        default=30_000, ge=0, le=50_000, description="Longest time that a Receive waits for a message."
    )
    queued_bytes: int = Field(
        default=64 << 20,
        ge=1 << 20,
        le=1 << 36,
        description="Bytes that may wait for the disk; beyond it, the mailbox stops reading.",
    )
    cached_bytes: int = Field(
        default=32 << 20, ge=0, le=1 << 40, description="Stored bytes kept in memory for receivers."
    )
    start_within_s: float = Field(
        default=30.0, gt=0, le=600, description="Give up when Signer is away this long at start."
    )

    def limits(self) -> Limits:
        """The bounds as the delivery takes them."""
        return Limits(
            topics=self.max_topics,
            topic_messages=self.max_topic_messages,
            inflight_messages=self.max_inflight,
            window_batches=self.window_batches,
            max_delay_ms=self.max_delay_ms,
        )
