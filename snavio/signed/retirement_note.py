"""The signed note of an hour whose files were deleted because of their age: what went, and when.

Valid once built. Tells an archive that lost files from one whose owner let them go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from snavio.native import ed25519_verify, format_timestamp, parse_timestamp
from snavio.signed.archive_manifest import EventRange, FileEntry
from snavio.signed.signed_document import KEY_ID, TIME, SignedDocument, read_signed, text_in
from snavio.signed.verification import VerifyingKey

FORMAT: Final = 1
NOTE_TYPE: Final = "snavio.telemetry.retirement"
ROOT: Final = "retired"
MAX_NOTE_BYTES: Final = 1 << 20
MAX_RANGES: Final = 4000
"""Ranges of events that a note names; as many fit into what Signer signs in one call."""

_FIELDS: Final = {
    "type",
    "format",
    "folder",
    "part",
    "retired_at",
    "keep_days",
    "files",
    "events",
    "size",
    "unlisted",
    "ranges",
    "more_ranges",
    "digest",
    "key_id",
    "signature",
}
_FOLDER = re.compile(r"telemetry/(date=\d{4}-\d{2}-\d{2}/hour=\d{2})", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_INSTANCE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class BadNote(Exception):
    """The reason why something is not a note, in words."""


@dataclass(frozen=True, slots=True)
class RetirementNote(SignedDocument):
    """See the module."""

    folder: str
    part: int
    """From 1; an hour that got files again after it went has another note."""
    retired_unix_ns: int
    keep_days: int
    files: int
    events: int
    size: int
    unlisted: int
    """Files that no good manifest listed; they went too."""
    ranges: tuple[EventRange, ...]
    more_ranges: int
    """Ranges that the note has no room for."""
    digest: str
    """SHA-256 over a line `<name> <sha256>` for each file in order: proves of a copy that it is what went."""

    @classmethod
    def of(
        cls,
        folder: str,
        files: Sequence[FileEntry],
        *,
        part: int,
        now_unix_ns: int,
        keep_days: int,
        unlisted: int,
    ) -> Self:
        """The note of an hour with these files."""
        ranges = joined(file.stretch for file in files)
        lines = "".join(f"{file.name} {file.sha256}\n" for file in sorted(files, key=lambda file: file.name))
        return cls(
            folder=folder,
            part=part,
            retired_unix_ns=now_unix_ns,
            keep_days=keep_days,
            files=len(files),
            events=sum(one.rows for one in ranges),
            size=sum(file.size for file in files),
            unlisted=unlisted,
            ranges=tuple(ranges[:MAX_RANGES]),
            more_ranges=len(ranges[MAX_RANGES:]),
            digest=hashlib.sha256(lines.encode()).hexdigest(),
        )

    @property
    def name(self) -> str:
        """Its name in the archive, such as `retired/date=2026-11-16/hour=05-1.json`."""
        return f"{ROOT}/{self.folder.partition('/')[2]}-{self.part}.json"

    def tells_of(self, files: Iterable[FileEntry]) -> bool:
        """True if all their events are among those that it says are gone."""
        return all(any(_within(file.stretch, one) for one in self.ranges) for file in files)

    def document(self) -> dict[str, Any]:
        """The JSON object without the signature. Numbers that may exceed 2^53 are texts."""
        return {
            "type": NOTE_TYPE,
            "format": FORMAT,
            "folder": self.folder,
            "part": str(self.part),
            "retired_at": format_timestamp(self.retired_unix_ns),
            "keep_days": str(self.keep_days),
            "files": str(self.files),
            "events": str(self.events),
            "size": str(self.size),
            "unlisted": str(self.unlisted),
            "ranges": [
                [one.instance, str(one.epoch), str(one.first_seq), str(one.last_seq)] for one in self.ranges
            ],
            "more_ranges": str(self.more_ranges),
            "digest": self.digest,
            "key_id": self.key_id,
        }

    def verified(self, keys: Sequence[VerifyingKey]) -> bool:
        """True if one of the keys, valid when it was made, has signed it."""
        good = [key for key in keys if key.key_id == self.key_id and key.good_at(self.retired_unix_ns)]
        return any(ed25519_verify(key.public_key, self.signed_form(), self.signature) for key in good)


def read_note(encoded: bytes) -> RetirementNote:
    """The note, unverified. BadNote when it is malformed."""
    if len(encoded) > MAX_NOTE_BYTES:
        raise BadNote("it is too large")
    try:
        found, signature, _ = read_signed(encoded, kind=NOTE_TYPE, form=FORMAT, fields=_FIELDS)
        if not isinstance(found["ranges"], list) or len(found["ranges"]) > MAX_RANGES:
            raise ValueError("its ranges are no list")
        numbers = {
            name: int(text_in(found, name, _NUMBER))
            for name in ("part", "keep_days", "files", "events", "size", "unlisted", "more_ranges")
        }
        return RetirementNote(
            folder=text_in(found, "folder", _FOLDER),
            retired_unix_ns=parse_timestamp(text_in(found, "retired_at", TIME)),
            ranges=tuple(_range(one) for one in found["ranges"]),
            digest=text_in(found, "digest", _SHA256),
            key_id=text_in(found, "key_id", KEY_ID),
            signature=signature,
            **numbers,
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadNote(str(error)) from error


def joined(stretches: Iterable[EventRange]) -> list[EventRange]:
    """The same events in as few ranges as possible."""
    found: list[EventRange] = []
    for one in sorted(stretches):
        last = found[-1] if found else None
        if (
            last is not None
            and (last.instance, last.epoch) == (one.instance, one.epoch)
            and one.first_seq <= last.last_seq + 1
        ):
            found[-1] = EventRange(
                last.instance, last.epoch, last.first_seq, max(last.last_seq, one.last_seq)
            )
        else:
            found.append(one)
    return found


def _within(one: EventRange, other: EventRange) -> bool:
    same = (one.instance, one.epoch) == (other.instance, other.epoch)
    return same and other.first_seq <= one.first_seq and one.last_seq <= other.last_seq


def _range(found: Any) -> EventRange:
    if not isinstance(found, list) or len(found) != 4:
        raise ValueError("a range is not one")
    named = dict(zip(("instance", "epoch", "first", "last"), found, strict=True))
    return EventRange(
        text_in(named, "instance", _INSTANCE),
        *(int(text_in(named, name, _NUMBER)) for name in ("epoch", "first", "last")),
    )
