"""`snavio snapshot` as an operator runs it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from services.registry.settings import RegistrySettings
from snavio.v1.snapshot_pb2 import SnapshotManifest, SnapshotPart, SnapshotTtl
from tests.support.control import Control, control_plane
from tests.support.snapshots import Studio
from tests.support.terminal import snavio, told


async def test_show_tells_what_the_manifests_say_and_wants_no_mesh(tmp_path: Path) -> None:
    studio = Studio(tmp_path / "snapshots")
    folder = ("--dir", str(studio.folder))
    ran = await asyncio.to_thread(snavio, "snapshot", "show", *folder, folder=tmp_path)
    assert (ran.returncode, ran.stdout.count("\n"), ran.stderr) == (1, 1, "")
    await studio.fill()
    await studio.writer.write_once()
    shown = await asyncio.to_thread(told, "snapshot", "show", *folder, folder=tmp_path)
    assert set(shown["manifests"]) == {"snapshot", "acl"}
    assert shown["manifests"]["snapshot"]["version_id"] == "7"
    ran = await asyncio.to_thread(snavio, "snapshot", "show", *folder, folder=tmp_path)
    assert re.search(r"^routes +3 +\d+ +b3:", ran.stdout, re.MULTILINE)
    studio.manifest_path.write_bytes(b"{")
    shown = await asyncio.to_thread(told, "snapshot", "show", *folder, folder=tmp_path)
    assert shown["manifests"]["snapshot"]["unreadable"] == "malformed"


def test_verify_without_a_mesh_says_what_to_do(tmp_path: Path) -> None:
    ran = snavio("snapshot", "verify", folder=tmp_path)
    assert ran.returncode == 3
    assert "snavio up" in ran.stderr


async def test_verify_believes_signers_keys_and_nothing_else(tmp_path: Path) -> None:
    settings = RegistrySettings(write_snapshots=False)
    async with control_plane(tmp_path / "state", registry=True, registry_settings=settings) as control:
        assert control.registry is not None
        await control.registry.snapshots.write_once()
        assert control.signer is not None
        await control.signer.keys.snapshots.turn()
        verdicts = await _verify(control, tmp_path, code=0)
        assert [kind for kind, verdict in verdicts.items() if verdict["good"]] == ["snapshot", "acl", "hmac"]
        studio = Studio(tmp_path / "forged")
        await studio.writer.write_once()
        forged = await _verify(control, tmp_path, "--dir", str(studio.folder), code=1)
        assert forged["snapshot"]["refused"] == "unknown-key"
        await control.stop_registry()
        await control.stop_signer()
        assert (await _verify(control, tmp_path, code=3))["error"]["exit_code"] == 3


async def _verify(control: Control, folder: Path, *words: str, code: int) -> Any:
    (folder / "snavio.toml").write_text(
        f'[mesh]\nstate_dir = "{control.mesh.state_dir}"\nsigner = "{control.mesh.signer}"\n', "utf-8"
    )
    return await asyncio.to_thread(told, "snapshot", "verify", *words, folder=folder, code=code)


async def test_the_proto_names_every_field_of_a_manifest(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    document = studio.manifest().document()

    def fields(message: Any) -> set[str]:
        return {field.name for field in message.DESCRIPTOR.fields}

    assert {*document, "signature"} == fields(SnapshotManifest)
    assert set(document["parts"][0]) == fields(SnapshotPart)
    assert set(document["ttl_policy"]["low"]) == fields(SnapshotTtl)
