"""docs/consumer.md against the code: a consumer written from that page alone must work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from services.mailbox.settings import MailboxSettings
from services.mailbox.wire import receive_stream, servicer
from snavio.domain.chunks import MAX_WHOLE_BYTES
from snavio.errors import Code
from snavio.native import blake3_digest, frame_leased_batch, parse_timestamp, read_leased_batches
from snavio.rpc import capability
from snavio.sdk.delivery import Integrity, Settlement
from snavio.v1.batch_pb2 import Run
from snavio.v1.command_pb2 import Command
from snavio.v1.mailbox_pb2 import LeasedBatch, StoredCommand

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "consumer.md").read_text("utf-8")
FLAT = " ".join(PAGE.split())
SETTINGS = MailboxSettings.model_validate({})


def table(header: str) -> list[list[str]]:
    """The rows, cell by cell, of the one table whose header begins with `header`."""
    assert PAGE.count(f"\n{header}") == 1, header
    _, _, below = PAGE.partition(f"\n{header}")
    rows = []
    for line in below.splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def example(label: str) -> str:
    found = re.findall(rf"<!-- example: {label} -->\n```\n(.*?)\n```\n", PAGE, re.DOTALL)
    assert len(found) == 1, label
    block: str = found[0]
    return block


def fields() -> dict[str, str]:
    _, _, section = PAGE.partition("### Worked example")
    rows = re.findall(r"^\| ([^|]+) \| `(.*)` \|$", section.partition("The payload hash:")[0], re.MULTILINE)
    return {name.strip("`"): value for name, value in rows}


def leased() -> LeasedBatch:
    """The example's message as the mailbox frames it."""
    told = fields()
    command = Command(
        id=told["id"],
        timestamp=told["timestamp"],
        target=told["target"],
        name=told["name"],
        content_type=told["content_type"],
        payload=told["payload"].encode(),
        traceparent=told["traceparent"],
    ).SerializeToString()
    runs = LeasedBatch(run=[Run(source=told["Run.source"], command=[command])]).SerializeToString()
    framed = frame_leased_batch(
        runs,
        topic=told["topic"],
        batch_id=3,
        first=7,
        attempt=1,
        stored_unix_ns=int(told["stored_unix_ns"]),
        shard=0,
    )
    (message,) = read_leased_batches(framed, told["topic"])[1]
    assert message[15] == Integrity.VERIFIED
    assert message[0] == 3 * 1024 + 7
    # Behind the tag and two bytes of length of the response's field.
    return LeasedBatch.FromString(framed[3:])


def test_the_examples_hashes_are_those_of_the_mailbox() -> None:
    batch = leased()
    assert batch.payload_hash.hex() == example("payload hash") == blake3_digest(b"hello").hex()
    assert batch.hash_chain.hex() == example("chain value")


def test_the_examples_parts_make_its_chain_value_as_the_page_says() -> None:
    parts = [bytes.fromhex(line) for line in example("parts").splitlines()]
    text = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    assert blake3_digest(text).hex() == example("chain value")
    told = fields()
    assert parts[0].decode() == told["topic"]
    assert parse_timestamp(parts[1].decode()) == int(told["stored_unix_ns"])
    assert parts[2].decode() == f"{told['Run.source']}#{told['id']}"
    names = [part.decode() for part in parts[4::2]]
    assert names == sorted(names) == [name.strip("`") for name, _ in table("| name | value |")]


def test_a_stored_command_has_every_field_of_a_command_but_the_source() -> None:
    stored = {field.number: (field.name, field.type) for field in StoredCommand.DESCRIPTOR.fields}
    for field in Command.DESCRIPTOR.fields:
        assert field.name == "source" or stored[field.number] == (field.name, field.type)
    (vector,) = (
        each
        for each in json.loads((ROOT / "tests/vectors/message_hashes.json").read_text())["messages"]
        if "attributes" in each["title"]
    )
    (raw,) = LeasedBatch.FromString(bytes.fromhex(vector["runs_hex"])).run[0].command
    message = StoredCommand.FromString(raw)
    known = StoredCommand.FromString(raw)
    known.DiscardUnknownFields()
    assert known.SerializeToString() == message.SerializeToString()
    assert message.idem_key == vector["idem_key"] and len(message.attr) > 1
    assert not StoredCommand.FromString(raw).name


def test_the_settlements_are_those_of_the_wire() -> None:
    rows = [(int(code), name.strip("`")) for code, name, _ in table("| code | name | meaning |")]
    assert rows == [(each.value, each.name.lower()) for each in Settlement if each is not Settlement.BUFFERED]


def test_another_capability_helps_where_the_page_says() -> None:
    named = {name.strip("`") for name, _ in table("| `snavio-reason` | because |")}
    assert named == capability.HELPED


def test_every_code_of_the_taxonomy_that_a_consumer_meets_is_told() -> None:
    named = {code.strip("`") for code, *_ in table("| `snavio-code` | status |")}
    # Of a send, of an operator's look at a topic, and of a fault of the mailbox itself.
    assert named == {code.name for code in Code} - {"E_DUPLICATE", "E_NOT_FOUND", "E_INTERNAL"}


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("250 to {}", SETTINGS.max_visibility_ms),
        ("at most {}; 0 for that", servicer.MAX_MESSAGES),
        ("wait for a first message, at most {};", SETTINGS.max_wait_ms),
        ("{} in all", receive_stream.MAX_CREDIT),
        ("same length, at most {}", servicer.MAX_RECEIPTS),
        ("`reason` has at most {} bytes", servicer.MAX_REASON_BYTES),
        ("no whole is larger than {} MiB", MAX_WHOLE_BYTES >> 20),
        ("16384 to {}", receive_stream.CHUNK_BYTES[1]),
    ],
)
def test_the_limits_of_the_page_are_those_of_the_code(sentence: str, value: int) -> None:
    assert sentence.format(value) in FLAT, sentence.format(value)
