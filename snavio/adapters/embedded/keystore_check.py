"""Checks that a sealed key store can be opened with the key at hand. Never discloses its contents."""

from __future__ import annotations

from pathlib import Path

from snavio.adapters.embedded.keystore_document import decode
from snavio.adapters.embedded.sealed_file import FORMAT_VERSION, MAGIC
from snavio.adapters.embedded.sealing import read_sealing_key


def check_key_store(sealed: Path, *, sealing_key: Path) -> None:
    """IntegrityError for a damaged store; StateError when the key is missing or is not the one that sealed it."""
    key = read_sealing_key(sealing_key)
    plain = key.unseal(sealed.read_bytes(), magic=MAGIC, format_version=FORMAT_VERSION, name=str(sealed))
    decode(plain, name=str(sealed))
