"""Inspects an archive in a folder: its contents, and which of them verify.

Never fails because of what it finds, never changes anything, and accepts no file that no verified manifest lists.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from snavio.signed.archive_manifest import (
    MAX_MANIFEST_BYTES,
    ArchiveManifest,
    BadManifest,
    EventRange,
    FileEntry,
    present,
    read_manifest,
)
from snavio.signed.manifest_signer import verified
from snavio.signed.retirement_note import MAX_NOTE_BYTES, BadNote, RetirementNote, read_note
from snavio.signed.retirement_note import ROOT as NOTES
from snavio.signed.verification import VerifyingKey

SETTLING_NS: Final = 60_000_000_000
"""A file younger than this may be incomplete: Relay writes it before the manifest that lists it."""
_HOUR: Final = re.compile(r"telemetry/date=\d{4}-\d{2}-\d{2}/hour=\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArchiveFinding:
    """A defect; `problem` is a stable name."""

    path: str
    problem: str
    detail: str


@dataclass(slots=True)
class Hour:
    """One folder of an archive, according to its manifests."""

    folder: str
    manifests: list[tuple[ArchiveManifest, bytes]] = field(default_factory=list)
    """Each with the bytes that its signature must cover."""
    findings: list[ArchiveFinding] = field(default_factory=list)

    @property
    def files(self) -> list[FileEntry]:
        """The listed files that are not replaced, verified or not."""
        return present(manifest for manifest, _ in self.manifests)


def hours(archive: Path, *, since: str = "") -> Iterator[Hour]:
    """Every hour, oldest first; only those from the folder `since` on, where one is named."""
    for folder in hour_folders(archive, since=since):
        yield _read(archive, folder)


def hour_folders(archive: Path, *, since: str = "") -> Iterator[str]:
    """The folders of hours, oldest first; only those from `since` on, where one is named."""
    for path in sorted((archive / "telemetry").glob("date=*/hour=*")):
        folder = path.relative_to(archive).as_posix()
        if _HOUR.fullmatch(folder) and folder >= since and path.is_dir():
            yield folder


def _read(archive: Path, folder: str) -> Hour:
    hour = Hour(folder)
    for path in sorted((archive / folder).glob("_manifest-*.json")):
        read = read_one(path, folder)
        if isinstance(read, ArchiveFinding):
            hour.findings.append(read)
        else:
            hour.manifests.append(read)
    return hour


def read_one(path: Path, folder: str) -> tuple[ArchiveManifest, bytes] | ArchiveFinding:
    """A manifest with the bytes that its signature must cover; or why it is none."""
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise BadManifest("it is too large")
        manifest, signed = read_manifest(path.read_bytes())
        if manifest.file_name != path.name:
            raise BadManifest("it says that it is another")
    except (BadManifest, OSError) as error:
        return ArchiveFinding(f"{folder}/{path.name}", "bad-manifest", f"{error}.")
    return manifest, signed


def believed(hour: Hour, keys: Sequence[VerifyingKey]) -> tuple[list[ArchiveManifest], list[ArchiveFinding]]:
    """The manifests that one of the keys has signed, and the defects of the others."""
    good, findings = [], list(hour.findings)
    for manifest, signed in hour.manifests:
        name = f"{hour.folder}/{manifest.file_name}"
        if verified(manifest, signed, keys):
            good.append(manifest)
        elif any(key.key_id == manifest.key_id for key in keys):
            findings.append(ArchiveFinding(name, "bad-signature", "The signature does not fit."))
        else:
            findings.append(ArchiveFinding(name, "unknown-key", f"Nobody knows the key {manifest.key_id}."))
    return good, findings


def check(archive: Path, hour: Hour, keys: Sequence[VerifyingKey]) -> list[ArchiveFinding]:
    """The defects of an hour; empty when there are none."""
    good, found = believed(hour, keys)
    listed = {file.name: file for file in present(good)}
    replaced = {name for manifest in good for name in manifest.replaces}
    for name, file in listed.items():
        problem = check_file(archive / hour.folder / name, file)
        if problem is not None:
            found.append(ArchiveFinding(f"{hour.folder}/{name}", *problem))
    for path in sorted((archive / hour.folder).iterdir()):
        name = f"{hour.folder}/{path.name}"
        if path.name.startswith("."):
            found.append(
                ArchiveFinding(name, "half-written", "A file that was not finished; no reader looks at it.")
            )
        elif path.suffix == ".parquet" and path.name in replaced and path.name not in listed:
            found.append(
                ArchiveFinding(name, "left-over", "Replaced by others; the next compaction takes it away.")
            )
        elif path.suffix == ".parquet" and path.name not in listed:
            found.append(ArchiveFinding(name, "unsigned", "No manifest with a good signature lists it."))
    return found


def retired(archive: Path, keys: Sequence[VerifyingKey]) -> tuple[list[RetirementNote], list[ArchiveFinding]]:
    """The notes of hours that were deleted because of their age, oldest first, and those that cannot be believed."""
    notes: list[RetirementNote] = []
    findings: list[ArchiveFinding] = []
    for path in sorted((archive / NOTES).glob("date=*/hour=*.json")):
        name = path.relative_to(archive).as_posix()
        try:
            if path.stat().st_size > MAX_NOTE_BYTES:
                raise BadNote("it is too large")
            note = read_note(path.read_bytes())
            if note.name != name:
                raise BadNote("it says that it is another")
        except (BadNote, OSError) as error:
            findings.append(ArchiveFinding(name, "bad-note", f"{error}."))
            continue
        if note.verified(keys):
            notes.append(note)
        else:
            findings.append(ArchiveFinding(name, "bad-note", "No known key has signed it."))
    return notes, findings


def lasting(archive: Path, findings: Iterable[ArchiveFinding], *, now_unix_ns: int) -> list[ArchiveFinding]:
    """The defects without those that a running Relay explains: files that wait for their manifest, or were replaced
    meanwhile.
    """
    listed: dict[str, set[str]] = {}
    left: list[ArchiveFinding] = []
    for finding in findings:
        folder, _, name = finding.path.rpartition("/")
        if finding.problem in ("half-written", "unsigned"):
            try:
                if now_unix_ns - (archive / finding.path).stat().st_mtime_ns < SETTLING_NS:
                    continue
            except FileNotFoundError:
                continue  # It was on its way, and has arrived.
        elif finding.problem == "missing":
            if folder not in listed:
                listed[folder] = {file.name for file in _read(archive, folder).files}
            if name not in listed[folder]:
                continue
        left.append(finding)
    return left


def check_file(path: Path, file: FileEntry) -> tuple[str, str] | None:
    """(problem, sentence) of a file that differs from the signed one; None when it does not."""
    try:
        # The cheap check first: a file of another size need not be read.
        if path.stat().st_size == file.size:
            with path.open("rb") as contents:
                if hashlib.file_digest(contents, "sha256").hexdigest() != file.sha256:
                    return "tampered", "It is not the file that was signed."
    except FileNotFoundError:
        pass
    except OSError as error:
        return "unreadable", f"{type(error).__name__}: it cannot be read."
    return check_readable(path, file)


def check_readable(path: Path, file: FileEntry) -> tuple[str, str] | None:
    """The same, judged by its size and its last bytes; a changed byte in the middle goes unnoticed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size != file.size:
            return "truncated", f"It has {path.stat().st_size} bytes instead of {file.size}."
        rows = pq.read_metadata(path).num_rows
    except FileNotFoundError:
        return "missing", "A manifest lists it and it is not there."
    except (OSError, pa.ArrowException) as error:
        return "unreadable", f"{type(error).__name__}: it cannot be read."
    if rows != file.stretch.rows:
        return "wrong-rows", f"It has {rows} rows instead of {file.stretch.rows}."
    return None


def overlaps(found: Sequence[Hour]) -> list[ArchiveFinding]:
    """Files whose events another file contains too."""
    findings: list[ArchiveFinding] = []
    reaches: dict[tuple[str, int], EventRange] = {}
    for after, folder in sorted((file.stretch, hour.folder) for hour in found for file in hour.files):
        life = (after.instance, after.epoch)
        before = reaches.get(life)
        if before is not None and after.first_seq <= before.last_seq:
            detail = f"{before.file_name} holds some of its events."
            findings.append(ArchiveFinding(f"{folder}/{after.file_name}", "overlap", detail))
        if before is None or after.last_seq > before.last_seq:
            reaches[life] = after
    return findings
