"""A sealing key wrapped by an external service: the port over AWS KMS, played by moto, and a Signer that uses it."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from services.signer.app import SignerApp
from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.adapters.aws.kms import KmsKeyWrapping
from snavio.clock import ManualClock
from snavio.config import MeshSettings
from snavio.errors import IntegrityError, SnavioError, StateError, Unavailable
from snavio.ports.key_wrapping import KmsKey
from snavio.wiring import open_key_store
from tests.support.moto import REGION, MotoServer, moto_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aws() -> AsyncIterator[MotoServer]:
    async with moto_server() as server:
        yield server


@dataclass
class Kms:
    """One key in moto."""

    server: MotoServer
    where: KmsKey

    async def call(self, method: str, **arguments: Any) -> Any:
        async with self.server.client("kms") as client:
            return await getattr(client, method)(**arguments)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kms(aws: MotoServer) -> Kms:
    async with aws.client("kms") as client:
        made = await client.create_key(Description="snavio")
    key: str = made["KeyMetadata"]["KeyId"]
    return Kms(aws, KmsKey(key, region=REGION, endpoint=aws.url, installation="snavio.local"))


async def refusal(attempt: Any) -> SnavioError:
    with pytest.raises(SnavioError) as refused:
        await attempt
    return refused.value


async def test_a_data_key_is_wrapped_and_comes_back(kms: Kms) -> None:
    wrapping = KmsKeyWrapping(kms.where)
    first, second = await wrapping.fresh(), await wrapping.fresh()
    assert len(first.key) == 32
    assert first.key != second.key
    assert first.key not in first.wrapped
    assert await wrapping.unwrap(first.wrapped) == first.key
    assert str(first.key) not in repr(first)


async def test_a_key_of_another_installation_or_a_damaged_one_is_not_opened(kms: Kms) -> None:
    fresh = await KmsKeyWrapping(kms.where).fresh()
    other = KmsKeyWrapping(replace(kms.where, installation="rival.local"))
    assert (await refusal(other.unwrap(fresh.wrapped))).reason == "kms-refused"
    damaged = fresh.wrapped[:-1] + bytes([fresh.wrapped[-1] ^ 1])
    error = await refusal(KmsKeyWrapping(kms.where).unwrap(damaged))
    assert error.reason == "kms-refused"
    assert "damaged" in str(error)


async def test_a_key_that_is_not_there_or_may_not_be_used_is_said_in_a_sentence(kms: Kms) -> None:
    nobody = KmsKeyWrapping(replace(kms.where, key="alias/nobody"))
    error = await refusal(nobody.fresh())
    assert isinstance(error, StateError)
    assert "no such key" in str(error)
    assert "alias/nobody" in str(error)
    strange = KmsKeyWrapping(replace(kms.where, endpoint="not an address"))
    assert (await refusal(strange.fresh())).reason == "kms-refused"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("AccessDeniedException", StateError, "may not use the key"),
        ("DisabledException", StateError, "disabled"),
        ("KMSInvalidStateException", StateError, "pending deletion"),
        ("ExpiredTokenException", StateError, "expired"),
        ("ThrottlingException", Unavailable, "cannot be reached"),
        ("SomethingNewException", StateError, "SomethingNewException"),
    ],
)
async def test_what_kms_answers_becomes_our_words_and_not_its(
    code: str, kind: type[SnavioError], words: str
) -> None:
    where = KmsKey("alias/snavio", region=REGION, endpoint="", installation="snavio.local")
    error = KmsKeyWrapping(where)._translated(code)
    assert isinstance(error, kind)
    assert words in str(error)


async def test_a_kms_that_is_away_is_unavailable(kms: Kms) -> None:
    away = KmsKeyWrapping(replace(kms.where, endpoint="http://127.0.0.1:9"))
    error = await refusal(away.fresh())
    assert isinstance(error, Unavailable)
    assert error.reason == "kms-unavailable"


async def test_without_credentials_it_says_so(kms: Kms, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    error = await refusal(KmsKeyWrapping(kms.where).fresh())
    assert "credentials" in str(error)


# --- the key store ---------------------------------------------------------------------------------------------------


def signer_on(kms: Kms, tmp_path: Path) -> tuple[MeshSettings, SignerSettings]:
    mesh = MeshSettings(state_dir=tmp_path, signer="127.0.0.1:0")
    settings = SignerSettings(
        sealing_kms_key=kms.where.key,
        sealing_kms_region=REGION,
        sealing_kms_endpoint=kms.where.endpoint,
        enrol_listen="127.0.0.1:0",
    )
    return mesh, settings


async def test_signer_lives_on_a_key_that_kms_keeps_and_no_key_is_on_disk(kms: Kms, tmp_path: Path) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    clock = ManualClock(time.time_ns())
    await prepare(mesh, settings, clock=clock)
    app = SignerApp(mesh, settings, clock)
    await app.start()
    await app.drain()
    folder = tmp_path / "signer"
    assert not (folder / "sealing.key").exists()
    wrapped = settings.sealing_key_path(mesh)
    assert wrapped == folder / "sealing.kms"
    assert wrapped.stat().st_mode & 0o077 == 0
    # Neither KMS key nor blob alone opens the store: another key of the same account does not.
    made = await kms.call("create_key", Description="another")
    other = settings.model_copy(update={"sealing_kms_key": made["KeyMetadata"]["KeyId"]})
    error = await refusal(open_key_store(settings.store_path(mesh), sealing_key=wrapped, kms=other.kms(mesh)))
    assert error.reason == "kms-refused"


async def test_init_again_keeps_the_key_and_a_lost_one_is_not_papered_over(kms: Kms, tmp_path: Path) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    clock = ManualClock(time.time_ns())
    await prepare(mesh, settings, clock=clock)
    wrapped = settings.sealing_key_path(mesh)
    before = wrapped.read_bytes()
    await prepare(mesh, settings, clock=clock)
    assert wrapped.read_bytes() == before
    wrapped.unlink()
    error = await refusal(prepare(mesh, settings, clock=clock))
    assert error.reason == "no-sealing-key"
    assert not wrapped.exists()


async def test_signer_does_not_start_while_kms_is_away_and_says_why(kms: Kms, tmp_path: Path) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    clock = ManualClock(time.time_ns())
    await prepare(mesh, settings, clock=clock)
    away = settings.model_copy(update={"sealing_kms_endpoint": "http://127.0.0.1:9"})
    app = SignerApp(mesh, away, clock)
    error = await refusal(app.start())
    await app.drain()
    assert (type(error), error.reason) == (Unavailable, "kms-unavailable")


@pytest.mark.parametrize("contents", [b"", b"{}", b'{"format":1,"wrapped":"!"}', b"\xff" * 100])
async def test_a_damaged_file_of_the_wrapped_key_is_named_as_such(
    kms: Kms, tmp_path: Path, contents: bytes
) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    path = settings.sealing_key_path(mesh)
    path.parent.mkdir(parents=True)
    path.write_bytes(contents)
    error = await refusal(prepare(mesh, settings, clock=ManualClock(time.time_ns())))
    assert isinstance(error, IntegrityError)


async def test_a_wrapped_key_of_a_newer_program_is_left_alone(kms: Kms, tmp_path: Path) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    path = settings.sealing_key_path(mesh)
    path.parent.mkdir(parents=True)
    path.write_bytes(orjson.dumps({"format": 2, "wrapped": ""}))
    assert (await refusal(prepare(mesh, settings, clock=ManualClock(time.time_ns())))).reason == "newer-store"


async def test_two_sealing_keys_are_one_too_many(
    kms: Kms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    monkeypatch.setenv("SNAVIO_SEALING_KEY", "77" * 32)
    error = await refusal(prepare(mesh, settings, clock=ManualClock(time.time_ns())))
    assert error.reason == "two-sealing-keys"


async def test_without_the_extra_it_says_which_one_is_missing(
    kms: Kms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, settings = signer_on(kms, tmp_path)
    monkeypatch.delitem(sys.modules, "snavio.adapters.aws.kms")
    monkeypatch.setitem(sys.modules, "aioboto3", None)
    error = await refusal(prepare(mesh, settings, clock=ManualClock(time.time_ns())))
    assert error.reason == "extra-missing"


async def test_a_region_without_a_key_is_a_contradiction() -> None:
    with pytest.raises(ValueError, match="sealing_kms_key is not"):
        SignerSettings(sealing_kms_region=REGION)
