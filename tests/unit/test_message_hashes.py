"""payload_hash and hash_chain of leased messages, against a slow twin and shared vectors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snavio.native import (
    blake3_digest,
    frame_leased_batch,
    read_leased_batches,
    read_new_messages,
    sign_command,
)
from snavio.sdk.delivery import Integrity
from snavio.sdk.envelope import envelope_of
from snavio.v1.batch_pb2 import Run
from snavio.v1.mailbox_pb2 import LeasedBatch, NewMessage, ReceiveResponse, SendRequest
from tests.support.mailbox import FIELDS, fields_of

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "message_hashes.json").read_text()
)["messages"]
STORED = 1_700_000_000_123_456_789
CONTENT = (*FIELDS[FIELDS.index("stored_unix_ns") : FIELDS.index("admitted_unix_ns")], "idem_key", "attrs")


def chain(topic: str, stored_unix_ns: int, idem_key: str, payload: bytes, attrs: dict[str, str]) -> bytes:
    """The chain value as docs/mailbox.md describes it, part by part."""
    seconds, nanoseconds = divmod(stored_unix_ns, 1_000_000_000)
    ts = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
    parts = [topic.encode(), ts.encode(), idem_key.encode(), blake3_digest(payload)]
    for name in sorted(attrs):
        parts += [name.encode(), attrs[name].encode()]
    return blake3_digest(b"".join(len(part).to_bytes(8, "little") + part for part in parts))


def framed(runs: bytes, *, topic: str, attempt: int = 1, shard: int = 0, stored: int = STORED) -> bytes:
    return frame_leased_batch(
        runs, topic=topic, batch_id=3, first=0, attempt=attempt, stored_unix_ns=stored, shard=shard
    )


def runs_of(run: Run) -> bytes:
    serialised: bytes = LeasedBatch(run=[run]).SerializeToString()
    return serialised


def columns(response: bytes) -> tuple[bytes, bytes]:
    (batch,) = ReceiveResponse.FromString(response).batch
    return batch.payload_hash, batch.hash_chain


def integrity(response: bytes, topic: str) -> list[int]:
    return [row.integrity for row in read_leased_batches(response, topic)[1]]


TEXT = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
ATTRS = st.dictionaries(
    st.from_regex(r"[a-z0-9._-]{1,12}", fullmatch=True).filter(lambda name: not name.startswith("snavio.")),
    st.text(max_size=30),
    max_size=5,
)
MESSAGES = st.lists(st.tuples(st.binary(max_size=300), st.just("") | TEXT, ATTRS), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(MESSAGES, st.integers(0, 1 << 60), st.integers(1, 9), st.integers(0, 9))
def test_hashes_of_sent_messages_are_the_twins(
    messages: list[tuple[bytes, str, dict[str, str]]], stored: int, attempt: int, shard: int
) -> None:
    topic = "acme/own/mail"
    request = SendRequest(
        topic=topic,
        message=[
            NewMessage(payload=p, idem_key=k, attrs=a, payload_hash=blake3_digest(p)) for p, k, a in messages
        ],
    )
    rows, fault = read_new_messages(
        request.SerializeToString(),
        topic=topic,
        source="acme/shop",
        cert_serial="1",
        scope="acme",
        now_unix_ns=stored,
        secret=bytes(32),
        shards=1,
    )
    assert fault is None
    for _, _, _, runs, _, numbers in rows:
        response = framed(runs, topic=topic, attempt=attempt, shard=shard, stored=stored)
        chosen = [messages[number] for number in numbers]
        expected = [chain(topic, stored, k, p, {**a, "snavio.source": "acme/shop"}) for p, k, a in chosen]
        assert columns(response) == (b"".join(blake3_digest(p) for p, _, _ in chosen), b"".join(expected))
        assert set(integrity(response, topic)) == {Integrity.VERIFIED}
        for row, value in zip(read_leased_batches(response, topic)[1], expected, strict=True):
            assert envelope_of(topic, row).hash_chain == f"b3:{value.hex()}"


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(TEXT, st.binary(max_size=300)), min_size=1, max_size=6),
    st.data(),
)
def test_hashes_of_commands_are_the_twins_and_a_flipped_bit_is_noticed(
    commands: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    topic, source = "acme/bot", "globex/shop"
    ids = [f"00112233-4455-6677-8899-{number:012x}" for number in range(len(commands))]
    signed = [
        sign_command(
            b"k" * 32,
            key_version="hmac-v1",
            audience="a",
            command_id=command_id,
            timestamp_unix_ns=STORED,
            target="bot",
            name="say",
            payload=payload,
            content_type="text/plain",
        )
        for command_id, (_, payload) in zip(ids, commands, strict=True)
    ]
    response = framed(runs_of(Run(source=source, command=signed)), topic=topic)
    rows = read_leased_batches(response, topic)[1]
    known = {
        "snavio.source": source,
        "snavio.target": "bot",
        "snavio.name": "say",
        "snavio.timestamp": rows[0].timestamp,
        "content-type": "text/plain",
    }
    expected = [
        chain(topic, STORED, f"{source}#{command_id}", payload, known)
        for command_id, (_, payload) in zip(ids, commands, strict=True)
    ]
    assert columns(response)[1] == b"".join(expected)
    assert set(integrity(response, topic)) == {Integrity.VERIFIED}
    assert set(integrity(response, "acme/other")) == {Integrity.NOT_AS_STORED}
    flipped = bytearray(response)
    bit = data.draw(st.integers(0, len(response) * 8 - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        changed = read_leased_batches(bytes(flipped), topic)[1]
    except ValueError:
        return
    for row, before in zip(changed, rows, strict=False):
        # The receipt's numbers, the signature and the time of admission are not the message's content.
        if row.integrity == Integrity.VERIFIED:
            assert fields_of(row, *CONTENT) == fields_of(before, *CONTENT)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["title"]))
def test_vectors(vector: dict[str, Any]) -> None:
    response = framed(
        bytes.fromhex(vector["runs_hex"]), topic=vector["topic"], stored=vector["stored_unix_ns"]
    )
    payload_hash, hash_chain = columns(response)
    assert (payload_hash.hex(), hash_chain.hex()) == (vector["payload_hash"], vector["hash_chain"])
    attrs = dict(vector["attrs"])
    payload = bytes.fromhex(vector["payload_hex"])
    twin = chain(vector["topic"], vector["stored_unix_ns"], vector["idem_key"], payload, attrs)
    assert (twin.hex(), blake3_digest(payload).hex()) == (vector["hash_chain"], vector["payload_hash"])


def test_mailbox_that_sends_no_hashes_leaves_nothing_to_compare_with() -> None:
    runs = bytes.fromhex(VECTORS[0]["runs_hex"])
    old = ReceiveResponse(batch=[LeasedBatch.FromString(runs)]).SerializeToString()
    assert integrity(old, VECTORS[0]["topic"]) == [Integrity.UNVERIFIED]


def test_forged_hashes_are_noticed_and_missing_ones_are_malformed() -> None:
    topic, stored = VECTORS[0]["topic"], VECTORS[0]["stored_unix_ns"]
    good = ReceiveResponse.FromString(
        framed(bytes.fromhex(VECTORS[0]["runs_hex"]), topic=topic, stored=stored)
    )
    for field in ("payload_hash", "hash_chain"):
        forged = ReceiveResponse()
        forged.CopyFrom(good)
        setattr(forged.batch[0], field, bytes(32))
        assert integrity(forged.SerializeToString(), topic) == [Integrity.NOT_AS_STORED]
        forged.batch[0].ClearField(field)
        with pytest.raises(ValueError, match="ReceiveResponse"):
            read_leased_batches(forged.SerializeToString(), topic)
