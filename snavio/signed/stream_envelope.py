"""Envelopes of a tenant's stream in the bytes that are signed, chained and sent.

Never takes an envelope's word for its key: a signature counts with a key of its scope that was good when it was issued.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson

from snavio.domain.stream import DIGEST_PREFIX, SealedEnvelope, read_envelope
from snavio.errors import BadRequest
from snavio.native import blake3_hex, canonical_json, ed25519_verify, parse_timestamp
from snavio.signed.verification import VerifyingKey

SIGNATURE_HEX: Final = 128


def signed_form(envelope: SealedEnvelope) -> bytes:
    """The bytes that are signed: the canonical form without `signature`."""
    return canonical_json(orjson.dumps(envelope.document(signed=False)))


def form_within(body: bytes, envelope: SealedEnvelope) -> bytes:
    """The bytes that are signed, cut out of the canonical `body` that `envelope` was decoded from."""
    # No text of JSON has these bytes: quotation marks within one are escaped.
    member = b'"signature":"%b",' % envelope.signature.encode()
    at = body.rfind(member)
    return body[:at] + body[at + len(member) :] if at >= 0 else signed_form(envelope)


def encoded(envelope: SealedEnvelope) -> bytes:
    """The canonical form of the whole envelope."""
    return canonical_json(orjson.dumps(envelope.document()))


def composed(envelope: SealedEnvelope, events: bytes) -> tuple[bytes, bytes]:
    """The signed form of an envelope in two parts, between which its signature stands in its full form.

    `events` is a canonical JSON array, which replaces the envelope's: a writer need not parse what it has serialised.
    """
    text = {name: orjson.dumps(value) for name, value in envelope.document().items() if name != "payload"}
    source = orjson.dumps(envelope.payload["source"])
    # In the order of the canonical form, which has `signature` between `seq` and `type`.
    head = b"".join(
        [
            b'{"epoch":%b,"id":%b,"issued_at":%b' % (text["epoch"], text["id"], text["issued_at"]),
            b',"key_id":%b,"payload":{"events":%b' % (text["key_id"], events),
            b',"source":%b},"prev":%b' % (source, text["prev"]),
            b',"scope":%b,"seq":%b,' % (text["scope"], text["seq"]),
        ]
    )
    return head, b'"type":%b}' % text["type"]


def with_signature(parts: tuple[bytes, bytes], signature: bytes) -> bytes:
    """The canonical form of the whole envelope."""
    return b'%b"signature":"%b",%b' % (parts[0], signature.hex().encode(), parts[1])


def chained_digest(form: bytes) -> str:
    """`prev` of the envelope after the one with this signed form."""
    return DIGEST_PREFIX + blake3_hex(form)


def decoded(body: bytes) -> SealedEnvelope:
    """The envelope in these bytes; BadRequest `bad-envelope` for anything but canonical JSON of its form."""
    try:
        if canonical_json(body) != body:
            raise BadRequest("This is not canonical JSON.", reason="bad-envelope")
        document = orjson.loads(body)
    except ValueError:
        raise BadRequest("This is not JSON.", reason="bad-envelope") from None
    if not isinstance(document, dict):
        raise BadRequest("This is not an envelope.", reason="bad-envelope")
    return read_envelope(document)


def envelope_verified(envelope: SealedEnvelope, form: bytes, keys: Iterable[VerifyingKey]) -> bool:
    """True if one of the scope's keys, good when the envelope was issued, has signed `form`."""
    if len(envelope.signature) != SIGNATURE_HEX:
        return False
    try:
        issued_unix_ns = parse_timestamp(envelope.issued_at)
        signature = bytes.fromhex(envelope.signature)
    except ValueError:
        return False
    # Capitals would be a second spelling, and a second digest of the bytes, of what was signed once.
    if signature.hex() != envelope.signature:
        return False
    return any(
        ed25519_verify(key.public_key, form, signature)
        for key in keys
        if key.key_id == envelope.key_id and key.good_at(issued_unix_ns)
    )
