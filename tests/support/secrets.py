"""Finds a secret in bytes, however it was written down."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


def forms(secret: bytes) -> set[bytes]:
    """Forms of a secret in a file: raw, hex, any base64, and as Python, JSON and protobuf print bytes."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode(), secret.hex(":").encode()}
    for encode in (b64encode, urlsafe_b64encode):
        # In the middle of something longer that was encoded, the text depends on where the secret begins.
        for shift in range(3):
            text = encode(bytes(shift) + secret)
            first = (8 * shift + 5) // 6
            whole = (8 * (shift + len(secret))) // 6
            found.add(text[first:whole])
    found.add(repr(secret)[2:-1].encode())
    found.add("".join(f"\\{byte:03o}" for byte in secret).encode())
    found.add(str(list(secret))[1:-1].encode())
    return found


@dataclass
class Search:
    """Secrets by name, and where they must not be."""

    secrets: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, bytes] = field(default_factory=dict, repr=False)

    def hide(self, name: str, secret: bytes) -> None:
        assert len(secret) >= 16, "too short to be found by its bytes alone"
        self.secrets[name] = secret

    def look(self, name: str, text: bytes | str) -> None:
        self.places[name] = text if isinstance(text, bytes) else text.encode()

    def leaks(self) -> list[str]:
        """Names of secrets with their places; never a secret itself."""
        wanted: Mapping[str, Iterable[bytes]] = {name: forms(secret) for name, secret in self.secrets.items()}
        return [
            f"{secret} in {place}"
            for place, text in self.places.items()
            for secret, shapes in wanted.items()
            if any(shape in text for shape in shapes)
        ]
