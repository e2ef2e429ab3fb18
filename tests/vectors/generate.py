"""Writes `commands.json` from the plain twin: `python -m tests.vectors.generate`.

Never uses the native code: the vectors are what the native code is compared with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from snavio.domain.verdict import Verdict
from tests.support import twin

NOW = 1_790_000_000 * twin.NS
AUDIENCE = "shield-0:01"
SOURCE = "acme/billing"
SECRET = bytes(range(32))
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PATH = Path(__file__).with_name("commands.json")

GOOD: dict[str, bytes] = {
    "id": b"0190a5b2-7c00-7000-8000-000000000001",
    "timestamp": twin.format_timestamp(NOW).encode(),
    "type": b"snavio.command-sent",
    "key_version": b"hmac-v1",
    "audience": AUDIENCE.encode(),
    "target": b"discord-bot",
    "name": b"delete-user",
    "content_type": b"application/json",
    "payload": b'{"user":7}',
}

# The differences from GOOD, and the secret.
WORKED: dict[str, tuple[dict[str, bytes], bytes]] = {
    "an ordinary command": ({}, SECRET),
    "no payload": ({"payload": b""}, SECRET),
    "no content type": ({"content_type": b""}, SECRET),
    "neither payload nor content type": ({"payload": b"", "content_type": b""}, SECRET),
    "with a trace, which is not signed": ({"traceparent": TRACE.encode()}, SECRET),
    "payload of line feeds": ({"payload": b"\n\n0\n"}, SECRET),
    "payload of every byte": ({"payload": bytes(range(256))}, SECRET),
    "payload whose length has four digits": ({"payload": b"snavio " * 150}, SECRET),
    "time without a fraction": ({"timestamp": b"2026-09-21T14:13:20Z"}, SECRET),
    "time with one fractional digit": ({"timestamp": b"2026-09-21T14:13:20.5Z"}, SECRET),
    "sixty seconds behind": ({"timestamp": twin.format_timestamp(NOW - 60 * twin.NS).encode()}, SECRET),
    "sixty seconds ahead": ({"timestamp": twin.format_timestamp(NOW + 60 * twin.NS).encode()}, SECRET),
    "longest names": (
        {"target": b"t" * 128, "name": b"N" * 128, "key_version": b"k" * 64, "content_type": b"~" * 128},
        SECRET,
    ),
    "shortest names": ({"target": b"t", "name": b"N", "key_version": b"0", "payload": b"x"}, SECRET),
    "every character of the charsets": (
        {"target": b"a0._-", "name": b"Az9._:-", "key_version": b"a0.-"},
        SECRET,
    ),
    "secret as long as a block": ({}, bytes(range(64))),
    "secret longer than a block": ({}, bytes(range(100))),
}


def signed(**changes: bytes) -> bytes:
    return twin.sign(SECRET, {**GOOD, **changes})


def tagged(tag: bytes) -> bytes:
    return twin.encode({**GOOD, "hmac": tag})


REFUSED: dict[str, bytes] = {
    "nothing": b"",
    "truncated": signed()[:-1],
    "unknown field": signed() + twin.put(13, b"x"),
    "repeated field": signed() + twin.put(8, b"delete-user"),
    "wrong wire type": signed() + b"\x58\x01",
    "over-long length": signed() + b"\x5a\x80\x00",
    "group": signed() + b"\x5b\x5c",
    "name not UTF-8": signed(name=b"\xff"),
    "source not UTF-8": signed(source=b"\xff"),
    "payload over the limit": signed(payload=bytes(1025)),
    "source present": signed(source=SOURCE.encode()),
    "source present but empty": signed(source=b""),
    "source present and payload over the limit": signed(source=b"", payload=bytes(1025)),
    "nil id": signed(id=b"00000000-0000-0000-0000-000000000000"),
    "upper-case id": signed(id=b"0190A5B2-7C00-7000-8000-000000000001"),
    "short id": signed(id=b"0190a5b2"),
    "time without zone": signed(timestamp=b"2026-09-21T14:13:20"),
    "time with an offset": signed(timestamp=b"2026-09-21T14:13:20+00:00"),
    "time with twelve fractional digits": signed(timestamp=b"2026-09-21T14:13:20.123456789012Z"),
    "time in lower case": signed(timestamp=b"2026-09-21t14:13:20z"),
    "leap second": signed(timestamp=b"2026-09-21T14:13:60Z"),
    "29th of February of a common year": signed(timestamp=b"2026-02-29T14:13:20Z"),
    "another type": signed(type=b"snavio.command"),
    "key version in upper case": signed(key_version=b"HMAC-V1"),
    "key version too long": signed(key_version=b"a" * 65),
    "audience with a space": signed(audience=b"a b"),
    "tag of 16 bytes": tagged(twin.tag_of(SECRET, GOOD)[:16]),
    "tag of 31 bytes": tagged(twin.tag_of(SECRET, GOOD)[:31]),
    "tag of 33 bytes": tagged(twin.tag_of(SECRET, GOOD) + b"\x00"),
    "target with a slash": signed(target=b"a/b"),
    "target too long": signed(target=b"a" * 129),
    "name with a line feed": signed(name=b"delete\nuser"),
    "name with an umlaut": signed(name="löschen".encode()),
    "name that starts with a dot": signed(name=b".hidden"),
    "content type with a tab": signed(content_type=b"text/\tplain"),
    "traceparent of another version": signed(traceparent=b"01" + TRACE.encode()[2:]),
    "traceparent with a zero span": signed(
        traceparent=TRACE.encode().replace(b"00f067aa0ba902b7", b"0" * 16)
    ),
    "unknown key version": signed(key_version=b"hmac-v2"),
    "another audience": signed(audience=b"shield-0:00"),
    "a nanosecond too old": signed(timestamp=twin.format_timestamp(NOW - 60 * twin.NS - 1).encode()),
    "year 9999": signed(timestamp=b"9999-12-31T23:59:59.999999999Z"),
    "tag of zeros": tagged(bytes(32)),
    "payload changed after signing": twin.encode(
        {**GOOD, "payload": b"x", "hmac": twin.tag_of(SECRET, GOOD)}
    ),
    "byte moved from target to name": twin.encode(
        {**GOOD, "target": b"discord-bo", "name": b"tdelete-user", "hmac": twin.tag_of(SECRET, GOOD)}
    ),
}


def admission(secret: bytes, version: str) -> twin.TwinAdmission:
    shield = twin.TwinAdmission(AUDIENCE, max_payload_bytes=1024)
    shield.keysets[SOURCE] = [twin.TwinKey(version, secret)]
    return shield


def vectors() -> dict[str, Any]:
    """The whole document."""
    worked = []
    for title, (changes, secret) in WORKED.items():
        fields = {**GOOD, **changes}
        worked.append(
            {
                "title": title,
                "secret": secret.hex(),
                "fields": {name: body.decode() for name, body in fields.items() if name != "payload"},
                "payload": fields["payload"].hex(),
                "signed_text": twin.signed_text(fields).hex(),
                "tag": twin.tag_of(secret, fields).hex(),
                "command": twin.sign(secret, fields).hex(),
            }
        )
    refused = []
    for title, command in REFUSED.items():
        code = admission(SECRET, "hmac-v1").decide(command, source=SOURCE, now_unix_ns=NOW)
        assert code != Verdict.UNDECIDED, title
        refused.append({"title": title, "command": command.hex(), "code": int(code), "reason": code.reason})
    return {
        "comment": "Written by tests/vectors/generate.py. Byte strings are hex. Refused commands are judged "
        "with the first worked vector's secret as hmac-v1 and a payload limit of 1024 bytes.",
        "now_unix_ns": NOW,
        "window_ms": 60_000,
        "source": SOURCE,
        "audience": AUDIENCE,
        "refused_max_payload_bytes": 1024,
        "worked": worked,
        "refused": refused,
    }


def main() -> None:
    """Writes the file anew."""
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
