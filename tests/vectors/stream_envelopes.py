"""Writes `stream_envelopes.json`: `python -m tests.vectors.stream_envelopes`.

A chain of one tenant and what was done to it, for verifiers in any language. The keys are of this file alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from snavio.domain.stream import EPOCH_STRIDE
from snavio.native import canonical_json, ed25519_public_key, ed25519_sign, format_timestamp
from snavio.signed.stream_chain import EnvelopeFault
from tests.support.envelopes import ISSUED_NS, EnvelopeMaker

PATH = Path(__file__).with_name("stream_envelopes.json")
TENANT = "acme"
HOUR_NS = 3600 * 1_000_000_000
SEED, NEXT_SEED, STRANGER_SEED = b"\x07" * 32, b"\x08" * 32, b"\x09" * 32
DECODE, SIGNATURE = EnvelopeFault.DECODE.value, EnvelopeFault.SIGNATURE.value
SCOPE, CHAIN = EnvelopeFault.SCOPE.value, EnvelopeFault.CHAIN.value
REFUSED = "refused"
"""Where verifiers may say either that the form is wrong or that the signature does not fit."""


@dataclass
class Case:
    """Bodies in the order in which they come; for each the digest of its signed form, or the fault."""

    title: str
    bodies: list[bytes]
    outcomes: list[str]
    after: tuple[int, str] | None = None
    gaps: bool = False

    def document(self) -> dict[str, Any]:
        after = None if self.after is None else {"seq": str(self.after[0]), "digest": self.after[1]}
        bodies = [body.hex() for body in self.bodies]
        return {
            "title": self.title,
            "after": after,
            "gaps": self.gaps,
            "bodies": bodies,
            "outcomes": self.outcomes,
        }


def fixed(number: int) -> str:
    """Ids that do not change with the day on which the file is written."""
    return f"0193a000-0000-7000-8000-{number:012x}"


def chain(count: int) -> tuple[list[bytes], list[str], EnvelopeMaker]:
    maker = EnvelopeMaker(tenant=TENANT, seed=SEED)
    digests, bodies = [], []
    for number in range(count):
        events = [
            {"event": "snavio.command.delivered", "at": format_timestamp(ISSUED_NS), "count": number + 1},
            {"event": "snavio.command.failed", "reason": 'quo"te\\ \u2028 ü \U0001f600', "share": 0.1},
        ]
        payload = {"source": f"{TENANT}/billing", "events": events}
        bodies.append(maker.next(payload=payload, envelope_id=fixed(number)))
        digests.append(maker.prev)
    return bodies, digests, maker


def changed(body: bytes, **members: Any) -> bytes:
    """The same under its old signature."""
    return canonical_json(orjson.dumps({**orjson.loads(body), **members}))


def signed(body: bytes, seed: bytes = SEED, **members: Any) -> bytes:
    """Changed, and signed anew."""
    document = {**orjson.loads(body), **members}
    document.pop("signature")
    form = canonical_json(orjson.dumps(document))
    return canonical_json(orjson.dumps({**document, "signature": ed25519_sign(seed, form).hex()}))


def cases() -> list[Case]:
    bodies, digests, maker = chain(4)
    one, two, three, four = bodies
    first = maker.epoch * EPOCH_STRIDE + 1
    new_epoch = EnvelopeMaker(tenant=TENANT, seed=SEED, epoch=maker.epoch + 1)
    begun = new_epoch.next(envelope_id=fixed(9))
    late = format_timestamp(ISSUED_NS + HOUR_NS)
    return [
        Case("in order", bodies, digests),
        Case("after a bookmark", [three, four], digests[2:], (first + 1, digests[1])),
        Case("after a bookmark without its digest", [three], [digests[2]], (first + 1, "")),
        Case("after a bookmark of another history", [three], [CHAIN], (first + 1, digests[0])),
        Case("one left out", [one, three, two], [digests[0], CHAIN, digests[1]]),
        Case("one left out, in a filtered stream", [one, three], [digests[0], digests[2]], gaps=True),
        Case("back, in a filtered stream", [three, one], [digests[2], CHAIN], gaps=True),
        Case("the same again", [one, one, two], [digests[0], CHAIN, digests[1]]),
        Case("a new epoch", [one, begun], [digests[0], new_epoch.prev]),
        Case("the first of an epoch that names one before it", [signed(one, prev=digests[2])], [CHAIN]),
        Case("cut in the middle", [two, signed(three, prev=digests[0])], [digests[1], CHAIN]),
        Case("truncated", [one[: len(one) // 2], one[:-1], b""], [DECODE] * 3),
        Case("an event changed", [one.replace(b'"count":1', b'"count":2')], [SIGNATURE]),
        Case("its number changed", [changed(one, seq=str(first + 1))], [SIGNATURE]),
        Case("the largest number", [changed(one, seq="18446744073709551615")], [DECODE]),
        Case("a number with leading zeros", [signed(one, seq="0" + str(first))], [DECODE]),
        Case("a number instead of text", [signed(one, seq=first)], [DECODE]),
        Case("no source", [signed(one, payload={"events": []})], [DECODE]),
        Case("one member too many", [signed(one, extra="x")], [DECODE]),
        Case(
            "without a signature",
            [canonical_json(orjson.dumps(maker.unsigned(envelope_id=fixed(7)).document(signed=False)))],
            [DECODE],
        ),
        Case("another spelling of the same", [one.replace(b'{"epoch"', b'{ "epoch"')], [REFUSED]),
        Case(
            "a signature in capitals",
            [changed(one, signature=orjson.loads(one)["signature"].upper())],
            [REFUSED],
        ),
        Case("another tenant's", [signed(one, scope="tenant:globex")], [SCOPE]),
        Case("a stranger's key under our key id", [signed(one, STRANGER_SEED)], [SIGNATURE]),
        Case("a key that nobody knows", [signed(one, STRANGER_SEED, key_id="key-9")], [SIGNATURE]),
        Case("a key after its end", [signed(one, issued_at=late)], [SIGNATURE]),
        Case("a key before its time", [signed(one, NEXT_SEED, key_id="key-2")], [SIGNATURE]),
        Case(
            "the next key in its time",
            [one, rotated := signed(two, NEXT_SEED, key_id="key-2", issued_at=late)],
            [digests[0], digest_of(rotated)],
        ),
    ]


def digest_of(body: bytes) -> str:
    from snavio.signed.stream_envelope import chained_digest, decoded, signed_form

    return chained_digest(signed_form(decoded(body)))


def keys() -> list[dict[str, str]]:
    return [
        {
            "key_id": key_id,
            "public_key": ed25519_public_key(seed).hex(),
            "valid_from_unix_ns": str(begin),
            "valid_until_unix_ns": str(end),
        }
        for key_id, seed, begin, end in (
            ("key-1", SEED, ISSUED_NS - HOUR_NS, ISSUED_NS + HOUR_NS),
            ("key-2", NEXT_SEED, ISSUED_NS + HOUR_NS // 2, 0),
        )
    ]


def document() -> dict[str, Any]:
    """All of the file."""
    about = (
        "Envelopes of a tenant's stream, in hex, and what a verifier says to each: the digest of its signed form, "
        "or the fault; `refused` is any fault."
    )
    return {
        "about": about,
        "tenant": TENANT,
        "keys": keys(),
        "cases": [case.document() for case in cases()],
    }


def text() -> str:
    return json.dumps(document(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), "ascii")
