"""The envelope of a message: its way so far, and hashes that show that its bytes are unchanged.

Never contains in its chain value what changes from one delivery to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from snavio.native import Received, envelope


@dataclass(frozen=True, slots=True)
class Envelope:
    """Facts about a stored message. The hashes are `b3:` and 64 hex digits."""

    msg_id: int
    topic: str
    ts: str
    """Time at which the mailbox stored it, RFC 3339 with nine fractional digits."""
    idem_key: str
    """The sender's; of a command `<source>#<id>`."""
    payload_hash: str
    attrs: tuple[tuple[str, str], ...]
    """By name: the sender's, and what the mesh knows of it as `snavio.*`, `content-type` and `traceparent`."""
    corr_id: str
    """A UUID of version 7, the same in every delivery."""
    shard: int
    attempt: int
    hash_chain: str
    """Over topic, ts, idem_key, payload_hash and attrs; see docs/mailbox.md for the bytes."""


def envelope_of(topic: str, message: Received) -> Envelope:
    """The envelope of a message; the hashes are computed here, from its bytes."""
    told = {
        "snavio.source": message.source,
        "snavio.target": message.target,
        "snavio.name": message.name,
        "content-type": message.content_type,
        "traceparent": message.traceparent,
    }
    idem_key = message.idem_key
    if message.name:
        told["snavio.timestamp"] = message.timestamp
        idem_key = f"{message.source}#{message.id}"
    attrs = sorted([*message.attrs, *((key, text) for key, text in told.items() if text)])
    ts, payload_hash, corr_id, hash_chain = envelope(
        topic=topic,
        msg_id=message.msg_id,
        stored_unix_ns=message.stored_unix_ns,
        id=message.id,
        idem_key=idem_key,
        attrs=attrs,
        payload=message.payload,
    )
    return Envelope(
        message.msg_id,
        topic,
        ts,
        idem_key,
        payload_hash,
        tuple(attrs),
        corr_id,
        message.shard,
        message.attempt,
        hash_chain,
    )
