"""Settings of the mailbox."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Self

from pydantic import Field, model_validator

from services.mailbox.delivery.waiters import MAX_WAITERS
from services.mailbox.state.policy import Policies, Policy, topic_rules
from services.mailbox.state.topics import Limits
from snavio.config import Section
from snavio.config.sections import contradiction
from snavio.domain.queue_address import TELEMETRY_NAME

TELEMETRY_RULE: Final = f"*/{TELEMETRY_NAME}"
TELEMETRY_READY_S: Final = 14 * 86_400


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
    max_waiters: int = Field(
        default=MAX_WAITERS,
        ge=4,
        le=1_000_000,
        description="Receives that may wait for messages at a time, on streams and otherwise.",
    )
    max_spans: int = Field(
        default=400_000,
        ge=1000,
        le=100_000_000,
        description="Ranges of tried messages in memory, at some 500 bytes each. A tenant with its share of them gets "
        "nothing new to receive before some of what it gave back ends.",
    )
    max_topic_messages: int = Field(
        default=1_000_000,
        ge=1,
        le=1_000_000_000_000,
        description="Messages of one topic, ready and leased; beyond it, senders are refused as saturated.",
    )
    max_inflight: int = Field(
        default=200_000, ge=1, le=1_000_000_000, description="Leased messages of all topics together."
    )
    max_tenant_inflight: int = Field(
        default=100_000,
        ge=1,
        le=1_000_000_000,
        description="Leased messages of all topics of one tenant together.",
    )
    max_attempts: int = Field(
        default=10, ge=1, le=1000, description="Deliveries of one message before it goes to the DLQ."
    )
    backoff_base_ms: int = Field(
        default=250,
        ge=1,
        le=3_600_000,
        description="A NACK without a delay waits at random, at most this times two to the power of the attempt.",
    )
    backoff_max_ms: int = Field(
        default=60_000, ge=1, le=43_200_000, description="Bound of that random wait, whatever the attempt."
    )
    retention_ready_s: int = Field(
        default=604_800,
        ge=1,
        le=315_360_000,
        description="A message that is not acknowledged for so long goes to the DLQ as expired. Counted while the "
        "mailbox runs.",
    )
    retention_inflight_visibilities: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="How often a lease can be extended: to this many times its visibility.",
    )
    retention_delivered_s: int = Field(
        default=0,
        ge=0,
        le=315_360_000,
        description="How long acknowledged messages are kept, to be listed and requeued; 0 removes them at once.",
    )
    retention_delivered_messages: int = Field(
        default=10_000, ge=0, le=1_000_000_000, description="How many acknowledged messages a topic keeps."
    )
    retention_dlq_s: int = Field(
        default=1_209_600, ge=1, le=315_360_000, description="How long dead and canceled messages are kept."
    )
    retention_dlq_messages: int = Field(
        default=100_000,
        ge=1,
        le=1_000_000_000,
        description="Dead messages that a topic keeps, and as many canceled ones; beyond it, the oldest go.",
    )
    replay_window_ms: int = Field(
        default=300_000,
        ge=1000,
        le=604_800_000,
        description="How long the mailbox recognises a message by its key: a second one is answered and not stored. "
        "Counted while the mailbox runs. Commands of strict routes are recognised for [slow] dedupe_ms if that is "
        "longer.",
    )
    max_replay_keys: int = Field(
        default=10_000_000,
        ge=1000,
        le=1_000_000_000,
        description="Keys that are known at a time, at 80 to 150 bytes of memory each; one tenant may have half of "
        "them. Beyond it, messages with new keys are refused as saturated.",
    )
    shards: int = Field(
        default=1, ge=1, le=64, description="Shards of a topic; each keeps the order of its own messages."
    )
    topic_rules: str = Field(
        default="",
        description="Rules of single topics, such as `acme/own/mail replay_ms=600000 shards=8; */bot ready_s=3600`; "
        "`*` is every tenant. Names: max_attempts, backoff_base_ms, backoff_max_ms, ready_s, ready_messages, "
        "inflight_visibilities, "
        "delivered_s, delivered_messages, dlq_s, dlq_messages, replay_ms, shards, capacity, when_full (refuse or "
        "bury-oldest). The rules that a tenant has written for a topic of its own come before these.",
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

    capability_cache_s: float = Field(
        default=30.0,
        ge=5,
        le=120,
        description="How long a capability that was found valid counts as such; a revocation is felt within it.",
    )

    def limits(self) -> Limits:
        """The bounds as the delivery takes them."""
        return Limits(
            topics=self.max_topics,
            topic_messages=self.max_topic_messages,
            inflight_messages=self.max_inflight,
            tenant_inflight_messages=self.max_tenant_inflight,
            all_spans=self.max_spans,
            window_batches=self.window_batches,
            max_delay_ms=self.max_delay_ms,
        )

    @model_validator(mode="after")
    def _rules_can_be_read(self) -> Self:
        try:
            topic_rules(self.topic_rules, Policy())
        except ValueError as error:
            raise contradiction("topic_rules", f"cannot be read: {error}") from None
        return self

    def policies(self) -> Policies:
        """The rules of retries, retention and keys."""
        default = Policy(
            max_attempts=self.max_attempts,
            backoff_base_ms=self.backoff_base_ms,
            backoff_max_ms=self.backoff_max_ms,
            ready_s=self.retention_ready_s,
            inflight_visibilities=self.retention_inflight_visibilities,
            delivered_s=self.retention_delivered_s,
            delivered_messages=self.retention_delivered_messages,
            dlq_s=self.retention_dlq_s,
            dlq_messages=self.retention_dlq_messages,
            replay_ms=self.replay_window_ms,
            shards=self.shards,
        )
        # Relay must never wait for a tenant that does not read, and what it sends must last a fortnight.
        telemetry = replace(
            default, ready_s=TELEMETRY_READY_S, ready_messages=max(1, self.max_topic_messages * 9 // 10)
        )
        rules = {TELEMETRY_RULE: telemetry, **topic_rules(self.topic_rules, default)}
        return Policies(default=default, by_topic=rules)
