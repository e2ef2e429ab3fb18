"""A signed JSON document: its signed bytes, its signature, and how it is read.

Never reads one leniently: a missing, extra or doubled field, or one in another form, makes it malformed.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias

import orjson

from snavio.errors import Conflict
from snavio.native import canonical_json

SIGNING_ATTEMPTS: Final = 3
KEY_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{9}Z", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{128}", re.ASCII)

Sign: TypeAlias = Callable[[bytes], Awaitable[tuple[str, bytes]]]
"""Signs with the platform's key: the key's id and the signature."""


class UnknownFormat(ValueError):
    """The document is of a format that this version does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDocument:
    """The part that all have; `signature` is empty until it is signed."""

    key_id: str = ""
    signature: bytes = b""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """The JSON object without the signature. Numbers that may exceed 2^53 are texts."""

    def signed_form(self) -> bytes:
        """The signed bytes: RFC 8785, without the signature."""
        return canonical_json(orjson.dumps(self.document()))

    def encoded(self) -> bytes:
        """The bytes in the archive."""
        return canonical_json(orjson.dumps({**self.document(), "signature": self.signature.hex()}))

    async def signed(self, sign: Sign, *, key_id: str) -> Self:
        """The same with a signature, which is not verified; `key_id` is the key that probably signs now."""
        # The signed bytes contain the key's id, and only the signature shows which key signs now.
        for _ in range(SIGNING_ATTEMPTS):
            named = replace(self, key_id=key_id)
            key_id, signature = await sign(named.signed_form())
            if key_id == named.key_id:
                return replace(named, signature=signature)
        raise Conflict("The signing key changes faster than it signs.", reason="signing-key-changes")


def read_signed(
    encoded: bytes, *, kind: str, form: int, fields: Set[str]
) -> tuple[dict[str, Any], bytes, bytes]:
    """The fields, the signature, and the bytes that it must cover; ValueError when it is malformed."""
    # Refuses doubled keys, which two parsers would read differently.
    found = orjson.loads(canonical_json(encoded))
    if not isinstance(found, dict) or found.get("type") != kind:
        raise ValueError("it does not say that it is one")
    if found.get("format") != form:
        raise UnknownFormat("it is of another format")
    if set(found) != fields:
        raise ValueError("its fields are not those of a manifest")
    signature = bytes.fromhex(text_in(found, "signature", _SIGNATURE))
    del found["signature"]
    return found, signature, canonical_json(orjson.dumps(found))


def text_in(found: Any, field: str, form: re.Pattern[str]) -> str:
    """A text in that form; ValueError otherwise."""
    value = found[field]
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise ValueError(f"{field} is not in its form")
    return value
