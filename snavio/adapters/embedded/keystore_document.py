"""The contents of the sealed key store as one value, and its canonical bytes.

Pure. Its bytes hold every secret of the installation: they are for sealing and for nothing else.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from snavio.domain.delegation import Delegation
from snavio.domain.enrolment import Enrolment, Enrolments
from snavio.domain.key_rollout import Holder
from snavio.domain.keyset import Keyset, KeyVersion
from snavio.domain.signing_scope import RetiredKey, Rotation, Scope, ScopeKey
from snavio.errors import SnavioError, StateError
from snavio.ports.keystore import Authority, Revocation, SnapshotKey


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything in the store. The dictionaries are never changed in place and stand in order of version."""

    store_epoch: int
    version: int = 0
    authority: Authority | None = None
    keysets: dict[str, tuple[int, Keyset]] = field(default_factory=dict, repr=False)
    revocations: dict[str, tuple[int, Revocation]] = field(default_factory=dict, repr=False)
    scopes: dict[str, Scope] = field(default_factory=dict, repr=False)
    polls: dict[str, int] = field(default_factory=dict, repr=False)
    turns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Claimed turns: name → (claimed at, claimed until)."""
    enrolments: Enrolments = field(default_factory=Enrolments)
    delegations: dict[str, Delegation] = field(default_factory=dict, repr=False)
    snapshot_key: SnapshotKey | None = None
    holders: dict[str, Holder] = field(default_factory=dict)

    def changed(self, **fields: Any) -> Contents:
        """The contents with these fields, under a new version; the same object if none of them differs."""
        if all(getattr(self, name) == value for name, value in fields.items()):
            return self
        return replace(self, version=self.version + 1, **fields)


def encode(contents: Contents) -> bytes:
    """Canonical JSON: sorted keys, entries in order of version."""
    authority = contents.authority
    return orjson.dumps(
        {
            "store_epoch": contents.store_epoch,
            "version": contents.version,
            "authority": authority
            and {"certificate": authority.certificate_pem, "private_key": authority.private_key_pem},
            "keysets": [
                {
                    "at": at,
                    "source": keyset.source,
                    "minimum": keyset.minimum,
                    "versions": [_in_base64(key, "secret") for key in keyset.versions],
                }
                for at, keyset in contents.keysets.values()
            ],
            "revocations": [
                {"at": at, **asdict(revocation)} for at, revocation in contents.revocations.values()
            ],
            "scopes": {
                name: {
                    "keys": [_in_base64(key, "public_key", "seed") for key in scope.keys],
                    "rotation": scope.rotation and asdict(scope.rotation),
                    "retired": [_in_base64(key, "public_key") for key in scope.retired],
                }
                for name, scope in contents.scopes.items()
            },
            "polls": contents.polls,
            "turns": contents.turns,
            "enrolments": {
                "latest_ns": contents.enrolments.latest_ns,
                "open": [
                    {**asdict(enrolment), "digest": enrolment.digest.hex()}
                    for enrolment in contents.enrolments.open
                ],
            },
            "delegations": [asdict(delegation) for delegation in contents.delegations.values()],
            "snapshot_key": contents.snapshot_key and _in_base64(contents.snapshot_key, "key"),
            "holders": [asdict(holder) for holder in contents.holders.values()],
        },
        option=orjson.OPT_SORT_KEYS,
    )


def decode(document: bytes, *, name: str) -> Contents:
    """The inverse of `encode`; StateError for a document that this program does not understand."""
    try:
        parsed = orjson.loads(document)
        authority = parsed["authority"]
        return Contents(
            store_epoch=parsed["store_epoch"],
            version=parsed["version"],
            authority=authority and Authority(authority["certificate"], authority["private_key"]),
            keysets={
                entry["source"]: (
                    entry["at"],
                    Keyset(
                        entry["source"],
                        tuple(KeyVersion(**_from_base64(key, "secret")) for key in entry["versions"]),
                        entry.get("minimum", 0),
                    ),
                )
                for entry in parsed["keysets"]
            },
            revocations={
                revocation.subject: (at, revocation)
                for at, revocation in map(_decode_revocation, parsed["revocations"])
            },
            # Format 1 knew none of these.
            scopes={name: _decode_scope(name, entry) for name, entry in parsed.get("scopes", {}).items()},
            polls=parsed.get("polls", {}),
            turns={name: (claimed, until) for name, (claimed, until) in parsed.get("turns", {}).items()},
            enrolments=_decode_enrolments(parsed.get("enrolments", {"latest_ns": 0, "open": []})),
            delegations={
                entry["source"]: Delegation(**{**entry, "principals": tuple(entry["principals"])})
                for entry in parsed.get("delegations", ())
            },
            snapshot_key=SnapshotKey(**_from_base64(found, "key"))
            if (found := parsed.get("snapshot_key"))
            else None,
            holders={entry["name"]: Holder(**entry) for entry in parsed.get("holders", ())},
        )
    # `from None`: the parser's own message quotes the document, which holds secrets.
    except (KeyError, TypeError, ValueError, SnavioError):
        raise StateError(f"{name} holds a document that this program does not understand.") from None


def _in_base64(key: Any, *raw: str) -> dict[str, Any]:
    """The fields of a key, with those named `raw` as text."""
    return {**asdict(key), **{name: b64encode(getattr(key, name)).decode() for name in raw}}


def _from_base64(entry: dict[str, Any], *raw: str) -> dict[str, Any]:
    return {**entry, **{name: b64decode(entry[name], validate=True) for name in raw}}


def _decode_revocation(entry: dict[str, Any]) -> tuple[int, Revocation]:
    # In earlier formats every revocation named one serial.
    subject = entry.pop("serial", None) or entry.pop("subject")
    return entry.pop("at"), Revocation(subject, **entry)


def _decode_enrolments(entry: dict[str, Any]) -> Enrolments:
    return Enrolments(
        entry["latest_ns"],
        tuple(Enrolment(**{**each, "digest": bytes.fromhex(each["digest"])}) for each in entry["open"]),
    )


def _decode_scope(name: str, entry: dict[str, Any]) -> Scope:
    rotation = entry["rotation"]
    return Scope(
        name,
        tuple(ScopeKey(**_from_base64(key, "public_key", "seed")) for key in entry["keys"]),
        rotation and Rotation(**rotation),
        # Stores that were written before keys retired have none.
        tuple(RetiredKey(**_from_base64(key, "public_key")) for key in entry.get("retired", ())),
    )
