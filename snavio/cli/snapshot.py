"""`snavio snapshot`: what Registry and Signer have published, and whether it can be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.installation import InstallationOptions, MeshOptions
from snavio.cli.output import ago
from snavio.cli.platform_keys import platform_keys
from snavio.cli.render import NUMBER, Block, Table, TableColumn

if TYPE_CHECKING:
    from snavio.launch.installation import Installation
    from snavio.signed.snapshot_manifest import Manifest

snapshot = CommandGroup(
    "See the snapshots that Fast and Shield start from, and check them as they would.",
    examples=(
        "snavio snapshot show",
        "snavio snapshot verify",
    ),
)
Folder = Annotated[
    Path | None, typer.Option("--dir", help="Folder of the snapshots, if not the installation's.")
]


@snapshot.command("show")
def show_snapshots(folder: Folder = None, *, here: InstallationOptions) -> None:
    """Show the manifests of the snapshots, without checking them.

    Exit code 1 when there is none.

    \b
    Examples:
      snavio snapshot show
      snavio snapshot show --json | jq .manifests.snapshot.version_id
      snavio snapshot show --dir /mnt/snapshots
    """
    found = asyncio.run(_manifests(folder or here.find().mesh.snapshots()))
    here.show({"manifests": found}, *_blocks(found))
    if not found:
        raise typer.Exit(ExitCode.REFUSED)


@snapshot.command()
def verify(folder: Folder = None, *, here: MeshOptions) -> None:
    """Check signature, times, sizes and hashes with the keys that Signer gives, as Fast and Shield do.

    Exit code 0 when the snapshot is good, 1 when a reader would refuse it, 3 when Signer cannot be reached.

    \b
    Examples:
      snavio snapshot verify
      snavio snapshot verify --json | jq -r .snapshot.refused
    """
    installation = here.attach()
    verdicts = asyncio.run(_verify(installation, folder or installation.mesh.snapshots()))
    said = (
        f"{kind}: good, version {verdict['version_id']}, {verdict['rows']} rows, key {verdict['key_id']}"
        if verdict["good"]
        else f"{kind}: refused, {verdict['refused']}: {verdict['detail']}"
        for kind, verdict in verdicts.items()
    )
    here.show(verdicts, *said)
    if not all(verdict["good"] for verdict in verdicts.values()):
        raise typer.Exit(ExitCode.REFUSED)


async def _manifests(folder: Path) -> dict[str, Any]:
    from snavio.clock import SystemClock
    from snavio.errors import NotFound, Saturated
    from snavio.signed.snapshot_manifest import MAX_MANIFEST_BYTES, PLACES, read_manifest
    from snavio.signed.snapshot_refusal import SnapshotRefused
    from snavio.wiring import open_archive

    archive, now = open_archive(folder), SystemClock().unix_ns()
    found: dict[str, Any] = {}
    for kind, place in PLACES.items():
        try:
            encoded = await archive.get(place, max_bytes=MAX_MANIFEST_BYTES)
            found[kind] = _document(read_manifest(encoded).manifest, now)
        except NotFound:
            continue
        except Saturated:
            found[kind] = {"unreadable": "oversized"}
        except SnapshotRefused as refused:
            found[kind] = {"unreadable": refused.refusal.value, "detail": refused.detail}
    await archive.close()
    return found


def _document(manifest: Manifest, now_unix_ns: int) -> dict[str, Any]:
    return {
        **manifest.document(),
        "age_seconds": (now_unix_ns - manifest.generated_unix_ns) / 1e9,
        "total_bytes": manifest.total_bytes,
        "signature": manifest.signature.hex(),
    }


async def _verify(installation: Installation, folder: Path) -> dict[str, dict[str, Any]]:
    from snavio.clock import SystemClock
    from snavio.signed.accepted import NoWatermark
    from snavio.signed.snapshot_manifest import ACL, HMAC, SNAPSHOT
    from snavio.signed.snapshot_reader import Refused, SnapshotReader
    from snavio.wiring import open_archive

    archive = open_archive(folder)
    try:
        # Asked once, outside the reader: an absent Signer is no fault of the snapshot.
        async with platform_keys(installation) as signer:
            keys = await signer.verifying()

        async def known() -> Any:
            return keys

        reader = SnapshotReader(archive=archive, keys=known, watermark=NoWatermark(), clock=SystemClock())
        verdicts: dict[str, dict[str, Any]] = {}
        for kind in (SNAPSHOT, ACL, HMAC):
            verified = await reader.verify(kind=kind)
            if isinstance(verified, Refused):
                verdicts[kind] = {"good": False, "refused": verified.refusal.value, "detail": verified.detail}
            else:
                rows = sum(part.rows for part in verified.parts)
                document = verified.document()
                verdicts[kind] = {"good": True, "refused": None, "rows": rows} | {
                    name: document[name] for name in ("version_id", "generated_at", "expires_at", "key_id")
                }
        return verdicts
    finally:
        await archive.close()


def _blocks(found: dict[str, Any]) -> Iterator[Block]:
    columns = (
        "name",
        TableColumn("rows", kind=NUMBER),
        TableColumn("bytes", "size", NUMBER),
        TableColumn("BLAKE3", "blake3"),
    )
    for kind, told in found.items():
        if "unreadable" in told:
            yield f"{kind}: not a manifest ({told['unreadable']})"
            continue
        yield (
            f"{kind}: version {told['version_id']}, {ago(max(0.0, told['age_seconds']))} old, "
            f"until {told['expires_at'][:19]}Z, key {told['key_id']}"
        )
        yield Table(columns, told["parts"])
    if not found:
        yield "There is no snapshot yet: Registry publishes one soon after its start."
