"""Secrets are planted in a real mesh, which rotates, revokes, errs and crashes; then everything it wrote is searched.

Three kinds of file hold secrets in the clear by design: the sealing key, the private keys of certificates, and the key
that opens Signer's snapshots for Shield. All are readable by their owner only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.adapters.embedded.sealing import SealingKey
from snavio.admin.keys import KeyClient
from snavio.clock import SystemClock
from snavio.domain.keyset import create
from snavio.domain.signing_scope import MAILBOX, Pair, provision
from snavio.errors import SnavioError
from snavio.launch.probes import Probes
from snavio.launch.processes import SERVICES, MeshProcesses
from snavio.native import ed25519_public_key
from snavio.ports.keystore import SnapshotKey
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.proto_message import ProtoMessage
from snavio.v1 import signer_pb2 as wire
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh
from tests.support.secrets import Search, forms
from tests.support.terminal import snavio

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRIVATE = ("sealing.key", "key.pem", "keys.sealed", "shield-0.opening")
SEALING_KEY = bytes(range(7, 39))
HMAC_SECRET = bytes(range(101, 133))
SEED = bytes(range(180, 212))
SETTINGS: dict[str, dict[str, object]] = {
    "mesh": {"pull_interval_ms": 100},
    # Long enough for all mistakes to be made while a rotation is under way.
    "signer": {"distribution_delay_s": 3.0, "poll_after_s": 1},
}


async def plant(processes: MeshProcesses) -> None:
    """A store whose secrets this test has chosen."""
    folder = processes.state_dir / "signer"
    folder.mkdir(parents=True)
    (folder / "sealing.key").touch(mode=0o600)
    (folder / "sealing.key").write_bytes(SEALING_KEY)
    processes.prepare()
    store = await SealedKeyStore.open(folder / "keys.sealed", key=SealingKey(SEALING_KEY))
    now = SystemClock().unix_ns()
    await store.update_keyset(SOURCE, lambda _b: create(SOURCE, secret=HMAC_SECRET, now_ns=now))
    pair = Pair(ed25519_public_key(SEED), SEED)
    await store.update_scope("platform", lambda _b: provision("platform", pair, now_ns=now))
    await store.close()


async def hide_everything(search: Search, path: Path) -> None:
    """Register every secret of the store, planted or made by Signer."""
    store = await SealedKeyStore.open(path, key=SealingKey(SEALING_KEY))
    try:
        for keyset in await store.keysets(limit=100):
            for version in keyset.versions:
                search.hide(f"{keyset.source} {version.name}", version.secret)
        scopes = await store.scopes()
        assert {"platform", MAILBOX} <= {scope.name for scope in scopes}
        for scope in scopes:
            for seeded in scope.keys:
                search.hide(f"seed of {scope.name} {seeded.key_id}", seeded.seed)
        authority = await store.authority()
        assert authority is not None
        search.hide("snapshot key", (await store.snapshot_key(_present)).key)
    finally:
        await store.close()
    key = serialization.load_pem_private_key(authority.private_key_pem.encode(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    search.hide("CA key", key.private_numbers().private_value.to_bytes(32, "big"))
    search.hide("sealing key", SEALING_KEY)


def _present(key: SnapshotKey | None) -> SnapshotKey:
    assert key is not None
    return key


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def searched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Search, Path]]:
    folder = tmp_path_factory.mktemp("leaks")
    search = Search()
    processes = MeshProcesses.temporary(folder / "state", settings=SETTINGS)
    await plant(processes)
    try:
        for name in SERVICES:
            processes.spawn(name)
        for name in SERVICES:
            processes.wait_ready(name)
        mesh = DemoMesh(processes)
        await mesh.register()
        await live(mesh, search, folder)
        for name in SERVICES:
            for what in ("cmdline", "environ"):
                search.look(f"{what} of {name}", Path(f"/proc/{processes.pid(name)}/{what}").read_bytes())
    finally:
        processes.stop()
    await fail_to_start(processes, search)
    await hide_everything(search, processes.state_dir / "signer" / "keys.sealed")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("sealing.key", "key.pem", "shield-0.opening"):
            search.look(str(path.relative_to(folder)), path.read_bytes())
    yield search, folder


async def live(mesh: DemoMesh, search: Search, folder: Path) -> None:
    """Traffic, rotation, mistakes, queries, a crash, and revocation."""
    admin = mesh.certificates("operator-admin")
    async with mesh.producer() as producer, KeyClient(mesh.addresses["signer"], certificates=admin) as keys:
        assert (await producer.send(TARGET, NAME, b"one")).delivered
        await keys.rotate(SOURCE)
        await mistakes(mesh, keys, search)
        async with asyncio.timeout(30.0):
            while (await keys.status(SOURCE)).primary != "hmac-v2":
                await asyncio.sleep(0.05)
        assert (await producer.send(TARGET, NAME, b"two")).delivered
        await answers_to_operators(mesh, keys, search)
    await crash(mesh)
    async with mesh.producer() as producer, KeyClient(mesh.addresses["signer"], certificates=admin) as keys:
        after = await keys.revoke(SOURCE, (await keys.status(SOURCE)).primary)
        await keys.set_minimum(SOURCE, after.primary)
        assert (await producer.send(TARGET, NAME, b"three")).delivered
        search.look("repr of a producer", repr(vars(producer)) + repr(producer))
        await questions(mesh, keys, search, folder)


async def mistakes(mesh: DemoMesh, keys: KeyClient, search: Search) -> None:
    """Errors of every kind, with their texts."""
    as_shield = CertificateFiles.in_folder(mesh.certificates("shield"))
    channel = MeshChannel(mesh.addresses["signer"], files=as_shield, service="signer")
    at = "/snavio.v1.Signer/"
    for number, attempt in enumerate(
        (
            keys.rotate(SOURCE),
            keys.revoke(SOURCE, "hmac-v99"),
            keys.revoke("acme/nobody", "hmac-v1"),
            keys.set_minimum(SOURCE, "hmac-v2"),
            channel.call(at + "Sign", wire.SignRequest(scope="platform"), wire.SignResponse, timeout_s=5.0),
            channel.call_raw(at + "KeysetChanges", b"\xff\xff\xff", timeout_s=5.0),
            channel.call_raw(at + "NoSuchMethod", b"", timeout_s=5.0),
        )
    ):
        with pytest.raises(SnavioError) as refusal:
            await attempt
        search.look(f"error {number}", repr(refusal.value) + str(refusal.value))
    await channel.close()


async def questions(mesh: DemoMesh, keys: KeyClient, search: Search, folder: Path) -> None:
    """Every query of an operator, on the command line and by RPC."""
    config = str(mesh.processes.config)

    async def ask(*words: str) -> None:
        ran = await asyncio.to_thread(snavio, *words, "--config", config, folder=folder, SNAVIO_DEBUG="1")
        search.look(f"snavio {' '.join(words)}", ran.stdout + ran.stderr)

    await asyncio.gather(
        ask("keys", "ls"),
        ask("keys", "status", SOURCE),
        ask("keys", "status", SOURCE, "--json"),
        ask("keys", "revoke", SOURCE, "hmac-v77"),
        ask("status", "--json"),
    )
    await answers_to_operators(mesh, keys, search)


async def answers_to_operators(mesh: DemoMesh, keys: KeyClient, search: Search) -> None:
    answers: list[ProtoMessage] = [await keys.status(SOURCE), await keys.events()]
    async with Probes(mesh.processes.mesh, certificates=mesh.certificates("operator-admin")) as probes:
        answers += [status for status in (await probes.statuses()).values() if status is not None]
    for answer in answers:
        search.look(f"answer {len(search.places)}", answer.SerializeToString() + repr(answer).encode())


async def crash(mesh: DemoMesh) -> None:
    """Signer and Shield die as a fault in native code would end them."""
    for name in ("signer", "shield"):
        os.kill(mesh.processes.pid(name), signal.SIGABRT)
        mesh.processes.kill(name)
    for name in ("signer", "shield"):
        mesh.processes.spawn(name)
    for name in ("signer", "shield"):
        mesh.processes.wait_ready(name)


async def fail_to_start(processes: MeshProcesses, search: Search) -> None:
    """Signer with the wrong sealing key, and with a damaged store."""
    command = [sys.executable, "-P", "-m", "services.signer", "--config", str(processes.config)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    sealed = processes.state_dir / "signer" / "keys.sealed"
    whole = sealed.read_bytes()

    async def run(name: str, **more: str) -> None:
        ran = await asyncio.to_thread(
            subprocess.run, command, env={**environment, **more}, capture_output=True, timeout=30, check=False
        )
        assert ran.returncode != 0
        search.look(name, ran.stdout + ran.stderr)

    try:
        await run("start with another sealing key", SNAVIO_SEALING_KEY="ab" * 32)
        sealed.write_bytes(whole[:-1])
        await run("start on a damaged store")
    finally:
        sealed.write_bytes(whole)


async def test_no_capability_is_written_down_anywhere(searched: tuple[Search, Path]) -> None:
    search, _ = searched
    assert [place for place, text in search.places.items() if b"snvcap1." in text] == []
    # Signer has made some all the same.
    assert any(b"capability issued" in text for text in search.places.values())


async def test_no_secret_is_in_anything_that_the_mesh_wrote_or_said(searched: tuple[Search, Path]) -> None:
    search, _ = searched
    assert search.leaks() == []


async def test_the_search_was_worth_it(searched: tuple[Search, Path]) -> None:
    search, _ = searched
    # Planted, rotated and replaced keys, the CA, the seed and the sealing key.
    assert {f"{SOURCE} hmac-v1", f"{SOURCE} hmac-v3", "CA key", "sealing key"} <= set(search.secrets)
    assert search.secrets[f"{SOURCE} hmac-v1"] == HMAC_SECRET
    assert SEED in search.secrets.values()
    places = set(search.places)
    assert {f"state/logs/{name}.log" for name in SERVICES} <= places
    assert "state/signer/keys.sealed" in places
    assert any(place.startswith("state/snapshots/registry/hmac/") for place in places)
    assert "snapshot key" in search.secrets
    assert any(place.startswith("snavio keys status") for place in places)
    assert b"hmac-v2" in search.places["state/logs/signer.log"]


async def test_files_that_hold_secrets_are_for_their_owner_alone(searched: tuple[Search, Path]) -> None:
    _, folder = searched
    private = [path for path in folder.rglob("*") if path.name in PRIVATE]
    assert len(private) > len(SERVICES)
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


@pytest.mark.parametrize(
    "written",
    [
        HMAC_SECRET,
        HMAC_SECRET.hex().encode(),
        HMAC_SECRET.hex().upper().encode(),
        b64encode(HMAC_SECRET),
        b64encode(HMAC_SECRET).rstrip(b"="),
        urlsafe_b64encode(b"prefix" + HMAC_SECRET + b"suffix"),
        b64encode(b"pre" + b"f" + HMAC_SECRET + b"suffix"),
        b64encode(b"pref" + b"i" + HMAC_SECRET + b"s"),
        repr({"secret": HMAC_SECRET}).encode(),
        str(list(HMAC_SECRET)).encode(),
    ],
)
async def test_a_secret_is_found_however_it_is_written(written: bytes) -> None:
    assert any(shape in b"... " + written + b" ..." for shape in forms(HMAC_SECRET))


async def test_the_search_finds_what_is_there_and_names_it_without_showing_it() -> None:
    search = Search()
    search.hide("planted", HMAC_SECRET)
    search.look("a log", f"key={HMAC_SECRET.hex()}")
    search.look("another log", "nothing")
    assert search.leaks() == ["planted in a log"]
