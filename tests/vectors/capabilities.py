"""Writes `capabilities.json` from a plain twin: `python -m tests.vectors.capabilities`.

Never uses the code under test: the vectors are what it is compared with, in any language.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("capabilities.json")
SECRET = bytes(range(32))
ROOT = "00112233445566ff"
CAP_ID = "0190a5b27c0070008000000000000001"
ISSUED_MS = 1_790_000_000_000
HOLDER = "holder=spiffe://snavio.local/tenant/acme/service/bot"
EXPIRES = "expires=1790003600000"
OPERATIONS = "op=recv,ack,nack,extend,stats"


def mac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 by its definition."""
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).digest()


def root_key(realm: str, version: int) -> bytes:
    """RFC 5869, one block."""
    return mac(mac(b"snavio capability root 1", SECRET), f"{version}\n{realm}".encode() + b"\x01")


def identifier(realm: str, version: int) -> str:
    return f"snavio-cap-1\n{ROOT}\n{version}\n{CAP_ID}\n{ISSUED_MS}\n{realm}"


def worked(name: str, realm: str, version: int, caveats: list[str]) -> dict[str, Any]:
    """One capability with every step of its chain."""
    steps = [mac(root_key(realm, version), identifier(realm, version).encode())]
    for caveat in caveats:
        steps.append(mac(steps[-1], caveat.encode()))
    parts = [identifier(realm, version), *caveats]
    sized = [len(part.encode()).to_bytes(2, "big") + part.encode() for part in parts]
    body = b"\x01" + sized[0] + bytes([len(caveats)]) + b"".join(sized[1:]) + steps[-1]
    return {
        "name": name,
        "realm": realm,
        "version": version,
        "caveats": caveats,
        "root_key": root_key(realm, version).hex(),
        "steps": [step.hex() for step in steps],
        "text": "snvcap1." + base64.urlsafe_b64encode(body).rstrip(b"=").decode(),
    }


def document() -> dict[str, Any]:
    base = [HOLDER, OPERATIONS, EXPIRES]
    return {
        "secret": SECRET.hex(),
        "root": ROOT,
        "cap_id": CAP_ID,
        "issued_ms": ISSUED_MS,
        "capabilities": [
            worked("a consumer's", "acme/discord-bot", 1, base),
            worked("the same, narrowed", "acme/discord-bot", 1, [*base, "op=recv,ack", "quota=1000/60000"]),
            worked("of another root version", "acme/discord-bot", 2, base),
            worked(
                "of a tenant",
                "acme/*",
                1,
                ["holder=tenant:acme", OPERATIONS, "topic=acme/a,acme/b-*", EXPIRES],
            ),
            worked("Fast's", "*", 1, ["holder=spiffe://snavio.local/mesh/fast", "op=send", EXPIRES]),
            worked("without a caveat", "acme/discord-bot", 1, []),
        ],
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(document(), indent=1) + "\n")
