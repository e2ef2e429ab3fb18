"""Sends messages to a topic of one's own, without routes and signatures: the mailbox as a plain queue.

Never sends a message twice by itself: a caller that repeats a send gives it a key, and gets the first one's id back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.verdict import Verdict
from snavio.native import blake3_digest
from snavio.rpc.capability import CapabilityScope
from snavio.rpc.channel import MeshChannel
from snavio.sdk.lifetime import Closable
from snavio.sdk.mailbox_channel import mailbox_channel
from snavio.v1.mailbox_pb2 import NewMessage as WireMessage
from snavio.v1.mailbox_pb2 import SendRequest, SendResponse

METHOD = "/snavio.v1.Mailbox/Send"
CALL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class NewMessage:
    """One message. `idem_key` makes it the same as an earlier one with that key; see docs/mailbox.md for the rules."""

    payload: bytes
    idem_key: str = ""
    attrs: Mapping[str, str] = field(default_factory=dict)
    partition_key: str = ""
    delay_ms: int = 0
    content_type: str = ""
    traceparent: str = ""
    corr_id: str = ""
    replay_ms: int = 0
    """The time for which its key is known; 0 for the topic's replay window."""
    idem_content: bytes = b""
    """Compared in place of the payload with what an earlier message of its key had; at most 64 bytes."""

    def on_the_wire(self) -> WireMessage:
        """As a request has it."""
        return WireMessage(
            payload=self.payload,
            idem_key=self.idem_key,
            attrs=dict(self.attrs),
            partition_key=self.partition_key,
            delay_ms=self.delay_ms,
            content_type=self.content_type,
            traceparent=self.traceparent,
            corr_id=self.corr_id,
            payload_hash=blake3_digest(self.payload),
            replay_ms=self.replay_ms,
            idem_content=self.idem_content,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """Result of a send. `msg_id` is the first one's when it is a duplicate, 0 when it was not stored."""

    msg_id: int
    verdict: Verdict

    @property
    def duplicate(self) -> bool:
        """It was stored before, with the same payload."""
        return self.verdict is Verdict.DUPLICATE


class Mailer(Closable):
    """For one topic, `<tenant>/own/<name>`, under the certificate of a service in `certificates`."""

    def __init__(
        self,
        mailbox: str,
        topic: str,
        *,
        certificates: str | Path,
        signer: str | None = None,
        capability: str | None = None,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
    ) -> None:
        self._topic = topic
        self._channel = mailbox_channel(
            mailbox,
            CapabilityScope(topic, ("send",)),
            certificates=certificates,
            signer=signer,
            capability=capability,
            trust_domain=trust_domain,
        )

    @classmethod
    def over(cls, channel: MeshChannel, topic: str) -> Mailer:
        """A client over a channel that there is already."""
        mailer = cls.__new__(cls)
        mailer._topic, mailer._channel = topic, channel
        return mailer

    async def close(self) -> None:
        """Let go of the connection."""
        await self._channel.close()

    async def send(self, message: NewMessage) -> Sent:
        """Store one message. Conflict when its key was used with another payload, Saturated when there is no room."""
        return (await self.send_all([message]))[0]

    async def send_all(self, messages: Sequence[NewMessage]) -> list[Sent]:
        """Store up to 1000 messages in one call; of several, each has its own verdict."""
        request = SendRequest(topic=self._topic, message=[one.on_the_wire() for one in messages])
        answer = await self._channel.call(METHOD, request, SendResponse, timeout_s=CALL_SECONDS)
        return [Sent(msg_id, Verdict(code)) for msg_id, code in zip(answer.msg_id, answer.codes, strict=True)]
