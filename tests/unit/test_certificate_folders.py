"""Folders of certificates that a program gives to the SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.errors import BadRequest, StateError
from snavio.sdk import Consumer, Producer

ADDRESS = "127.0.0.1:1"
kinds = pytest.mark.parametrize("kind", [str, Path])


@kinds
async def test_producer_takes_a_text_or_a_path_and_names_the_folder(
    kind: type[str | Path], tmp_path: Path
) -> None:
    with pytest.raises(StateError, match=str(tmp_path)):
        await Producer(shield=ADDRESS, signer=ADDRESS, certificates=kind(tmp_path)).start()


@kinds
async def test_principals_folder_may_be_a_text_or_a_path(kind: type[str | Path], tmp_path: Path) -> None:
    folder = kind(tmp_path)
    producer = Producer(shield=ADDRESS, signer=ADDRESS, certificates=folder, principal_certificates=folder)
    with pytest.raises(BadRequest, match=f"{tmp_path} has no certificate yet"):
        await producer.start()


@kinds
async def test_consumer_takes_a_text_or_a_path_and_names_the_folder(
    kind: type[str | Path], tmp_path: Path
) -> None:
    async with Consumer(
        mailbox=ADDRESS, topic="acme/bot", certificates=kind(tmp_path), signer=ADDRESS
    ) as consumer:
        with pytest.raises(StateError, match=str(tmp_path)):
            await anext(aiter(consumer))
