"""The published vectors are those that the twin writes today, and the native code agrees with each of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snavio import native
from snavio.domain.verdict import Verdict
from tests.support import twin
from tests.vectors import generate

VECTORS: dict[str, Any] = json.loads(generate.PATH.read_text())


def judge(command: bytes, *, version: str, secret: bytes, max_payload_bytes: int) -> native.Judgement:
    shield = native.Admission(audience=VECTORS["audience"], max_payload_bytes=max_payload_bytes)
    shield.set_keyset(VECTORS["source"], [(version, secret, 0, 0, False)])
    return shield.judge_one(
        command, source=VECTORS["source"], cert_serial="1", now_unix_ns=VECTORS["now_unix_ns"], budget_ms=0
    )


def test_file_is_what_the_generator_writes() -> None:
    assert generate.vectors() == VECTORS


@pytest.mark.parametrize("vector", VECTORS["worked"], ids=lambda vector: vector["title"])
def test_worked_command_is_signed_and_let_in(vector: dict[str, Any]) -> None:
    secret, fields = bytes.fromhex(vector["secret"]), vector["fields"]
    command = bytes.fromhex(vector["command"])
    text = bytes.fromhex(vector["signed_text"])
    assert native.hmac_sha256(secret, text).hex() == vector["tag"]
    assert twin.parse_command(command)["hmac"].hex() == vector["tag"]
    judgement = judge(command, version=fields["key_version"], secret=secret, max_payload_bytes=1 << 18)
    assert list(judgement.ledger.codes) == [Verdict.UNDECIDED]
    sent = native.parse_timestamp(fields["timestamp"])
    if native.format_timestamp(sent) == fields["timestamp"]:
        again = native.sign_command(
            secret,
            key_version=fields["key_version"],
            audience=fields["audience"],
            command_id=fields["id"],
            timestamp_unix_ns=sent,
            target=fields["target"],
            name=fields["name"],
            payload=bytes.fromhex(vector["payload"]),
            content_type=fields["content_type"],
            traceparent=fields.get("traceparent", ""),
        )
        assert again == command


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["title"])
def test_refused_command_keeps_its_code(vector: dict[str, Any]) -> None:
    secret = bytes.fromhex(VECTORS["worked"][0]["secret"])
    limit = VECTORS["refused_max_payload_bytes"]
    judgement = judge(
        bytes.fromhex(vector["command"]), version="hmac-v1", secret=secret, max_payload_bytes=limit
    )
    assert list(judgement.ledger.codes) == [vector["code"]]
    assert Verdict(vector["code"]).reason == vector["reason"]
