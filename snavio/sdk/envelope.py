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


def envelope_of(topic: str, row: Received) -> Envelope:
    """Of a message as `snavio.native.read_leased_batches` tells it; the hashes are computed here, from its bytes."""
    msg_id, attempt, stored_unix_ns, source, own_id, timestamp, target, name = row[:8]
    content_type, payload, traceparent, _, idem_key, attrs, shard, _ = row[8:]
    told = {
        "snavio.source": source,
        "snavio.target": target,
        "snavio.name": name,
        "content-type": content_type,
        "traceparent": traceparent,
    }
    if name:
        told["snavio.timestamp"] = timestamp
        idem_key = f"{source}#{own_id}"
    everything = sorted([*attrs, *((key, text) for key, text in told.items() if text)])
    ts, payload_hash, corr_id, hash_chain = envelope(
        topic=topic,
        msg_id=msg_id,
        stored_unix_ns=stored_unix_ns,
        id=own_id,
        idem_key=idem_key,
        attrs=everything,
        payload=payload,
    )
    return Envelope(
        msg_id,
        topic,
        ts,
        idem_key,
        payload_hash,
        tuple(everything),
        corr_id,
        shard,
        attempt,
        hash_chain,
    )
