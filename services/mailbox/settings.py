"""The mailbox's section of the configuration."""

from __future__ import annotations

from pydantic import Field

from services.mailbox.topics import Limits
from snavio.config import Section


class MailboxSettings(Section):
    """Bounds of the mailbox, and whether it remembers anything."""

    amnesia: bool = Field(False, description="Keep messages in memory only; a restart forgets them all.")
    start_within_s: float = Field(30.0, gt=0, description="How long to wait for Signer at start.")
    max_store_bytes: int = Field(64 << 30, ge=1 << 20, description="Size at which the store takes no more.")
    max_topics: int = Field(10_000, ge=1, description="Topics that may exist.")
    max_topic_messages: int = Field(1_000_000, ge=1, description="Ready and leased messages of one topic.")
    max_inflight: int = Field(200_000, ge=1, description="Leased messages of all topics together.")
    window_batches: int = Field(1024, ge=16, le=65_536, description="Ready batches of a topic in memory.")
    max_visibility_ms: int = Field(43_200_000, ge=250, description="Longest lease that may be asked for.")
    max_delay_ms: int = Field(43_200_000, ge=0, description="Longest delay that a NACK may ask for.")
    max_wait_ms: int = Field(30_000, ge=0, le=50_000, description="Longest wait of a Receive.")
    queued_bytes: int = Field(64 << 20, ge=1 << 20, description="Bytes that may wait for the disk.")
    cached_bytes: int = Field(32 << 20, ge=0, description="Stored bytes kept in memory for receivers.")

    def limits(self) -> Limits:
        """The bounds as the delivery takes them."""
        return Limits(
            topics=self.max_topics,
            topic_messages=self.max_topic_messages,
            inflight_messages=self.max_inflight,
            window_batches=self.window_batches,
            max_delay_ms=self.max_delay_ms,
        )
