"""The signed manifest of an export: its files, their contents, and the files that they replace.

Valid once built. Never reads a manifest leniently, and never lets one name a file outside its own folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from snavio.native import format_timestamp, parse_timestamp
from snavio.signed.signed_document import KEY_ID, TIME, SignedDocument, read_signed, text_in

FORMAT: Final = 1
MANIFEST_TYPE: Final = "snavio.telemetry.manifest"
SCHEMA_VERSION: Final = 4
"""Version of the columns in the files; see `snavio.telemetry.schema`."""
ROOT: Final = "telemetry"
"""The folder of an archive that contains all exports."""
MAX_MANIFEST_BYTES: Final = 8 << 20
MAX_SIGNED_BYTES: Final = 1 << 20
"""Signed by Signer in one call: a manifest that is larger can be read and not made."""
MAX_FILES: Final = 10_000

_FIELDS: Final = {"type", "format", "number", "exported_at", "files", "replaces", "key_id", "signature"}
_FILE_FIELDS: Final = {
    "name",
    "instance",
    "epoch",
    "first_seq",
    "last_seq",
    "rows",
    "min_at",
    "max_at",
    "size",
    "sha256",
    "schema_version",
}
_NUMBER = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_INSTANCE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FILE_NAME = re.compile(
    r"(?P<instance>[a-z0-9][a-z0-9-]{0,62})-(?P<epoch>[0-9]{1,19})-(?P<first>[0-9]{1,19})-(?P<last>[0-9]{1,19})\.parquet",
    re.ASCII,
)


class BadManifest(Exception):
    """The reason why something is not a manifest, in words."""


@dataclass(frozen=True, slots=True, order=True)
class EventRange:
    """Events `first_seq` to `last_seq` of one life of one process; determines the name of a file."""

    instance: str
    epoch: int
    first_seq: int
    last_seq: int

    @property
    def rows(self) -> int:
        """The number of events, which is the number of rows of the file."""
        return self.last_seq - self.first_seq + 1

    @property
    def file_name(self) -> str:
        """Such as `fast-0-1794794400000000000-1-10000.parquet`."""
        return f"{self.instance}-{self.epoch}-{self.first_seq}-{self.last_seq}.parquet"

    @classmethod
    def of_file(cls, name: str) -> Self | None:
        """The range of a file's name; None for a name of another form."""
        found = _FILE_NAME.fullmatch(name)
        if found is None:
            return None
        return cls(found["instance"], int(found["epoch"]), int(found["first"]), int(found["last"]))


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of an export."""

    stretch: EventRange
    min_at_unix_ns: int
    max_at_unix_ns: int
    size: int
    sha256: str
    schema_version: int = SCHEMA_VERSION

    @property
    def name(self) -> str:
        """The file's name in the manifest's folder."""
        return self.stretch.file_name

    def document(self) -> dict[str, Any]:
        """The JSON object of the entry."""
        return {
            "name": self.name,
            "instance": self.stretch.instance,
            "epoch": str(self.stretch.epoch),
            "first_seq": str(self.stretch.first_seq),
            "last_seq": str(self.stretch.last_seq),
            "rows": self.stretch.rows,
            "min_at": format_timestamp(self.min_at_unix_ns),
            "max_at": format_timestamp(self.max_at_unix_ns),
            "size": self.size,
            "sha256": self.sha256,
            "schema_version": self.schema_version,
        }


@dataclass(frozen=True, slots=True)
class ArchiveManifest(SignedDocument):
    """See the module."""

    number: int
    exported_unix_ns: int
    files: tuple[FileEntry, ...]
    replaces: tuple[str, ...] = ()
    """Names, in the same folder, of files whose events these files contain now; readers skip them."""

    @property
    def file_name(self) -> str:
        """The manifest's own name in its folder."""
        return manifest_name(self.number)

    def document(self) -> dict[str, Any]:
        """The JSON object without the signature. Numbers that may exceed 2^53 are texts."""
        return {
            "type": MANIFEST_TYPE,
            "format": FORMAT,
            "number": str(self.number),
            "exported_at": format_timestamp(self.exported_unix_ns),
            "files": [file.document() for file in self.files],
            "replaces": list(self.replaces),
            "key_id": self.key_id,
        }


def present(manifests: Iterable[ArchiveManifest]) -> list[FileEntry]:
    """The valid files of one folder by name: listed, and not replaced."""
    listed: dict[str, FileEntry] = {}
    replaced: set[str] = set()
    for manifest in sorted(manifests, key=lambda manifest: manifest.number):
        listed.update((file.name, file) for file in manifest.files)
        replaced.update(manifest.replaces)
    return [listed[name] for name in sorted(listed.keys() - replaced)]


def manifest_name(number: int) -> str:
    """The manifest's name; names sort by number."""
    return f"_manifest-{number:012d}.json"


def folder_of(exported_unix_ns: int) -> str:
    """The folder of an export by date and hour, in UTC."""
    text = format_timestamp(exported_unix_ns)
    return f"{ROOT}/date={text[:10]}/hour={text[11:13]}"


def read_manifest(encoded: bytes) -> tuple[ArchiveManifest, bytes]:
    """The manifest, unverified, and the bytes that its signature must cover. BadManifest when it is malformed."""
    if len(encoded) > MAX_MANIFEST_BYTES:
        raise BadManifest("it is too large")
    try:
        found, signature, signed = read_signed(encoded, kind=MANIFEST_TYPE, form=FORMAT, fields=_FIELDS)
        return _manifest(found, signature), signed
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadManifest(str(error)) from error


def _manifest(found: dict[str, Any], signature: bytes) -> ArchiveManifest:
    files, replaces = found["files"], found["replaces"]
    if not isinstance(files, list) or not isinstance(replaces, list) or len(files) > MAX_FILES:
        raise ValueError("its files are no list")
    if not all(isinstance(name, str) and _FILE_NAME.fullmatch(name) for name in replaces):
        raise ValueError("it replaces what is no file of an archive")
    read = tuple(_file(file) for file in files)
    if len({file.name for file in read}) != len(read):
        raise ValueError("two files have one name")
    return ArchiveManifest(
        number=int(text_in(found, "number", _NUMBER)),
        exported_unix_ns=parse_timestamp(text_in(found, "exported_at", TIME)),
        files=read,
        replaces=tuple(replaces),
        key_id=text_in(found, "key_id", KEY_ID),
        signature=signature,
    )


def _file(found: Any) -> FileEntry:
    if not isinstance(found, dict) or set(found) != _FILE_FIELDS:
        raise ValueError("a file's fields are not those of a file")
    stretch = EventRange(
        instance=text_in(found, "instance", _INSTANCE),
        epoch=int(text_in(found, "epoch", _NUMBER)),
        first_seq=int(text_in(found, "first_seq", _NUMBER)),
        last_seq=int(text_in(found, "last_seq", _NUMBER)),
    )
    numbers = [found[name] for name in ("rows", "size", "schema_version")]
    if any(type(number) is not int or number < 1 for number in numbers):
        raise ValueError("a file's size is not a number")
    # Derived, not trusted: a manifest cannot point a reader at some other file.
    if found["name"] != stretch.file_name or found["rows"] != stretch.rows:
        raise ValueError("a file's name does not tell what is in it")
    return FileEntry(
        stretch=stretch,
        min_at_unix_ns=parse_timestamp(text_in(found, "min_at", TIME)),
        max_at_unix_ns=parse_timestamp(text_in(found, "max_at", TIME)),
        size=found["size"],
        sha256=text_in(found, "sha256", _SHA256),
        schema_version=found["schema_version"],
    )
