"""Positions in a tenant's stream: the four arms of `Last-Event-ID`, epochs, and the one form of an envelope."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import orjson
import pytest

from snavio.domain.stream import (
    EPOCH_STRIDE,
    MAX_SEQ,
    OutsideReplayWindow,
    SealedEnvelope,
    begin_epoch,
    read_envelope,
    resume,
)
from snavio.errors import BadRequest, Conflict
from snavio.native import ed25519_public_key, ed25519_sign
from snavio.rpc.status import code_of
from snavio.signed.stream_envelope import (
    chained_digest,
    composed,
    decoded,
    encoded,
    envelope_verified,
    form_within,
    signed_form,
    with_signature,
)
from snavio.signed.verification import VerifyingKey
from tests.support.envelopes import EnvelopeMaker

MALFORMED = [
    " ",
    "-7",
    "+42",
    "12.5",
    "1e10",
    "0x10",
    " 42",
    "42 ",
    "4_2",
    "abc",
    "42\n",
    "٤٢",
    "४२",
    "²",
    "null",
    "1,000",
    str(MAX_SEQ + 1),
    "9" * 40,
    "0" * 21,
    "42;43",
]


def test_without_a_bookmark_a_reader_gets_what_comes_next() -> None:
    assert resume(None, 10, 20) == 21
    assert resume("", 10, 20) == 21


def test_a_bookmark_within_the_window_goes_on_behind_it() -> None:
    assert [resume(text, 10, 20) for text in ("10", "15", "20")] == [11, 16, 21]


def test_a_bookmark_ahead_of_the_stream_waits_in_the_resume_arm() -> None:
    assert resume("21", 10, 20) == 22
    assert resume(str(MAX_SEQ), 10, 20) == MAX_SEQ + 1


@pytest.mark.parametrize("text", ["9", "0", "00"])
def test_a_bookmark_below_the_window_is_outside_of_it(text: str) -> None:
    with pytest.raises(OutsideReplayWindow) as raised:
        resume(text, 10, 20)
    assert raised.value.reason == "last_event_id_outside_replay_window"


@pytest.mark.parametrize("text", MALFORMED)
def test_anything_else_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequest) as raised:
        resume(text, 10, 20)
    assert raised.value.reason == "bad-last-event-id"


def test_a_bookmark_of_an_older_epoch_is_always_below_a_newer_one() -> None:
    before, after = begin_epoch(3), begin_epoch(4)
    with pytest.raises(OutsideReplayWindow):
        resume(str(before.high + EPOCH_STRIDE - 1), after.low, after.high)
    assert resume(str(after.high), after.low, after.high) == after.next_seq


def envelope(seq: int = EPOCH_STRIDE + 1) -> SealedEnvelope:
    return SealedEnvelope(
        envelope_id="019a0000-0000-7000-8000-000000000001",
        type="snavio.telemetry.command",
        scope="tenant:acme",
        key_id="ed25519-1",
        issued_at="2026-11-16T05:00:00.000000000Z",
        epoch=1,
        seq=seq,
        prev="",
        payload={"source": "acme/shop", "events": [{"event": "snavio.command.delivered", "count": 1}]},
    )


def test_an_envelope_is_the_same_after_its_bytes() -> None:
    signed = envelope().with_signature(b"\1" * 64)
    assert decoded(encoded(signed)) == signed
    assert signed_form(signed) == signed_form(envelope())
    assert chained_digest(signed_form(signed)).startswith("b3:")


@pytest.mark.parametrize("source", ["acme/shop", "", 'a/"\\\b\f\n\x01\x1f', "a/ü\u2028"])
def test_an_envelope_composed_of_its_parts_is_the_canonical_one(source: str) -> None:
    whole = replace(envelope(), payload={"source": source, "events": [{"a": 1}, {"b": "é"}]})
    parts = composed(replace(whole, payload={"source": source}), '[{"a":1},{"b":"é"}]'.encode())
    assert b"".join(parts) == signed_form(whole)
    signature = bytes(range(64))
    assert with_signature(parts, signature) == encoded(whole.with_signature(signature))


def test_a_signature_counts_with_a_good_key_and_every_member_is_under_it() -> None:
    seed = b"\7" * 32
    key = VerifyingKey("ed25519-1", ed25519_public_key(seed), 0)
    signed = envelope().with_signature(ed25519_sign(seed, signed_form(envelope())))
    assert envelope_verified(signed, signed_form(signed), [key])
    others: dict[str, Any] = {
        "envelope_id": "other",
        "type": "snavio.telemetry.audit",
        "scope": "tenant:other",
        "issued_at": "2026-11-16T05:00:00.000000001Z",
        "seq": EPOCH_STRIDE + 2,
        "prev": "b3:00",
        "payload": {"source": "acme/shop", "events": []},
    }
    changed = [replace(signed, **{name: value}) for name, value in others.items()]
    assert not any(envelope_verified(forged, signed_form(forged), [key]) for forged in changed)
    ended = replace(key, valid_until_unix_ns=1)
    assert not envelope_verified(signed, signed_form(signed), [ended])
    assert not envelope_verified(replace(signed, signature="zz" * 64), signed_form(signed), [key])
    assert not envelope_verified(replace(signed, issued_at="yesterday"), signed_form(signed), [key])


@pytest.mark.parametrize(
    "changes",
    [
        {"seq": str(2 * EPOCH_STRIDE + 1)},
        {"seq": str(EPOCH_STRIDE)},
        {"seq": "0" + str(EPOCH_STRIDE + 1)},
        {"seq": EPOCH_STRIDE + 1},
        {"more": "1"},
        {"payload": []},
        {"payload": {"events": []}},
        {"payload": {"source": "a/b", "events": {}}},
        {"prev": None},
    ],
)
def test_any_other_form_is_no_envelope(changes: dict[str, object]) -> None:
    document = {**envelope().document(), **changes}
    with pytest.raises(BadRequest) as raised:
        read_envelope(document)
    assert raised.value.reason == "bad-envelope"


def test_bytes_that_are_not_canonical_are_no_envelope() -> None:
    body = encoded(envelope())
    for other in (
        body + b"\n",
        orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2),
        b"[]",
        b"{",
        b"",
    ):
        with pytest.raises(BadRequest):
            decoded(other)


def test_what_is_outside_the_window_is_a_failed_precondition_on_the_wire() -> None:
    assert code_of(OutsideReplayWindow(10)) is grpc.StatusCode.FAILED_PRECONDITION
    assert code_of(Conflict("")) is grpc.StatusCode.ALREADY_EXISTS


@pytest.mark.parametrize("signature", ["ab" * 64, "", 'x"y', "ü"])
@pytest.mark.parametrize("text", ["plain", '"signature":"', '\\"signature\\":\\"', "\u2028"])
def test_the_signed_form_within_a_body_is_that_of_the_envelope(signature: str, text: str) -> None:
    envelope = replace(
        EnvelopeMaker().unsigned(), type=text, payload={"source": text, "events": [{"signature": signature}]}
    )
    signed = replace(envelope, signature=signature)
    assert form_within(encoded(signed), signed) == signed_form(envelope)
