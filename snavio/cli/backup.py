"""`snavio backup` and `snavio restore`: every store of an installation into a folder, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from snavio.cli.installation import InstallationOptions
from snavio.cli.output import aside, megabytes

Folder = Annotated[Path, typer.Argument(help="Folder of the backup.")]


def backup(folder: Folder, here: InstallationOptions) -> None:
    """Copy every store into a new folder while the mesh runs, and check the copy.

    The mailbox is taken first and Signer's keys last, so that a restored mesh has everything that was acknowledged
    before the backup began. The folder holds keys: guard it as the state folder itself.

    \b
    Examples:
      snavio backup /backups/monday
      snavio backup /backups/monday --json | jq .begun
    """
    from snavio.clock import SystemClock
    from snavio.launch.backup import make
    from snavio.native import format_timestamp

    installation = here.find()
    made = make(
        installation.mesh.state_dir,
        folder.expanduser().absolute(),
        clock=SystemClock(),
        tell=lambda what: None if here.json else aside(f"copying: {what}"),
    )
    begun = format_timestamp(made.begun_unix_ns)
    archive = installation.mesh.archive()
    missing = [
        f"What was acknowledged after {begun} may be missing: messages, changes of rights, revocations, keys.",
        f"Archived telemetry is not part of it: copy {archive} after the backup, its files never change.",
        *made.notes,
    ]
    here.show(
        {
            "folder": str(made.folder),
            "begun": begun,
            "ended": format_timestamp(made.ended_unix_ns),
            "stores": list(made.stores),
            "files": len(made.files),
            "bytes": made.size,
            "damaged_batches": made.mailbox.damaged,
            "missing": missing,
        },
        f"backed up  {made.folder}  {', '.join(made.stores)}  {len(made.files)} files, {megabytes(made.size)}",
        *(f"  {sentence}" for sentence in missing),
    )


def restore(folder: Folder, here: InstallationOptions) -> None:
    """Bring a backup back into a state folder that is empty, or whose mesh is stopped.

    The backup is checked first. What was there is moved aside within the state folder, not deleted. The stores get new
    epochs, so that caches, snapshots and bookmarks start again instead of believing the time that is lost.

    \b
    Examples:
      snavio down && snavio restore /backups/monday && snavio up
      snavio restore /backups/monday --state-dir /var/lib/snavio
    """
    from snavio.clock import SystemClock
    from snavio.launch.processes import MeshProcesses
    from snavio.launch.restore import restore as bring_back
    from snavio.native import format_timestamp

    installation = here.find()
    restored = bring_back(
        folder.expanduser().absolute(),
        MeshProcesses(installation.mesh, config=installation.config),
        clock=SystemClock(),
        tell=lambda what: None if here.json else aside(what),
    )
    begun = format_timestamp(restored.backup.begun_unix_ns)
    missing = [
        f"What was acknowledged after {begun} may be missing.",
        "Make again what was revoked, frozen, banned or taken away since: it is allowed again.",
        "Commands that were sent with a key made since are refused until their sender has asked for its keys.",
    ]
    here.show(
        {
            "state_dir": str(installation.mesh.state_dir),
            "begun": begun,
            "stores": list(restored.backup.stores),
            "aside": str(restored.aside) if restored.aside else None,
            "missing": missing,
        },
        f"restored  {installation.mesh.state_dir}  {', '.join(restored.backup.stores)}",
        f"  What was there is in {restored.aside}." if restored.aside is not None else None,
        *(f"  {sentence}" for sentence in missing),
    )
