"""Every `KeyStore` there is, for tests of what holds on all; a test file names these fixtures to have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.adapters.embedded.sealing import SealingKey
from snavio.ports.keystore import KeyStore

KEY = SealingKey(b"k" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "signer" / "keys.sealed"


@pytest.fixture(params=["sealed"])
async def store(path: Path) -> AsyncIterator[KeyStore]:
    opened = await SealedKeyStore.open(path, key=KEY, create=True)
    yield opened
    await opened.close()
