"""References to secrets (`env: file: vault: raw:`), and secrets with the windows in which they are valid.

Never shows what follows `raw:`; bytes come from a `SecretSource` when they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from snavio.errors import BadRequest


class SecretScheme(Enum):
    """Where the bytes of a secret are."""

    ENV = "env"
    FILE = "file"
    VAULT = "vault"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A reference, valid once built."""

    scheme: SecretScheme
    name: str = field(repr=False)

    def __str__(self) -> str:
        return f"raw:{'*' * 5}" if self.scheme is SecretScheme.RAW else f"{self.scheme.value}:{self.name}"


@dataclass(frozen=True, slots=True)
class SecretWindow:
    """One version of a secret, valid from a time until, but without, another one. None is no end."""

    reference: SecretReference
    from_unix_ns: int = 0
    until_unix_ns: int | None = None

    def valid_at(self, unix_ns: int) -> bool:
        """True within the window."""
        return self.from_unix_ns <= unix_ns and (self.until_unix_ns is None or unix_ns < self.until_unix_ns)


class SecretChoice(Enum):
    """Which of several valid versions signs."""

    NEWEST = "newest_valid"
    OLDEST = "oldest_valid"


@dataclass(frozen=True, slots=True)
class EdgeSecret:
    """A named secret. Names together are the versions of a key; a `runtime` one may begin without any."""

    name: str
    version: SecretWindow | None
    runtime: bool = False
    max_versions: int = 32


class SecretSource(Protocol):
    """Reads the bytes behind a reference.

    Answers within a deadline of its own, with at most 64 KiB. May cache. Raises NotFound when nothing is there, and
    Unavailable when it cannot be told; never returns empty bytes, because an empty key signs for everybody.
    """

    async def read(self, reference: SecretReference) -> bytes:
        """The bytes."""
        ...


def parse_reference(text: str) -> SecretReference:
    """A reference as a file writes it; BadRequest names the mistake, without what follows the scheme."""
    scheme, colon, name = text.partition(":")
    known = ", ".join(f"`{each.value}:`" for each in SecretScheme)
    if not colon or scheme not in {each.value for each in SecretScheme}:
        raise BadRequest(
            f"A secret is given by a reference that begins with one of {known}.", reason="bad-reference"
        )
    if not name.strip():
        raise BadRequest(f"Nothing follows `{scheme}:`.", reason="bad-reference")
    if "\x00" in name:
        raise BadRequest(f"A NUL character follows `{scheme}:`.", reason="bad-reference")
    if scheme == "env" and not (
        name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    ):
        raise BadRequest(
            "The name of a variable follows `env:`, of letters, digits and `_`.", reason="bad-reference"
        )
    return SecretReference(SecretScheme(scheme), name)


def valid_versions(versions: Iterable[SecretWindow], *, at_unix_ns: int) -> tuple[SecretWindow, ...]:
    """The versions to verify with: all that were valid at the signed time, newest first."""
    found = [each for each in versions if each.valid_at(at_unix_ns)]
    return tuple(sorted(found, key=lambda each: -each.from_unix_ns))


def signing_version(
    versions: Sequence[SecretWindow], *, at_unix_ns: int, choice: SecretChoice
) -> SecretWindow | None:
    """The version to sign with; None when none is valid."""
    found = valid_versions(versions, at_unix_ns=at_unix_ns)
    if not found:
        return None
    return found[0] if choice is SecretChoice.NEWEST else found[-1]


async def read_valid(
    versions: Iterable[SecretWindow], source: SecretSource, *, at_unix_ns: int
) -> tuple[bytes, ...]:
    """The bytes of every version that was valid at a time, newest first; no other version is read."""
    found = valid_versions(versions, at_unix_ns=at_unix_ns)
    return tuple([await source.read(each.reference) for each in found])
