"""Verifies the signature of a request: our own forms, and those of the providers that sign in another way.

Judges the time before any key is touched, tries every key that was valid at the signed time, compares in constant time,
and never puts a byte of a header or of a key into what it answers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from snavio.edge.kinds import SECOND_NS
from snavio.edge.plan import HmacAuth
from snavio.edge.requests import EdgeRequest

MOST_TAGS: Final = 16
PROVIDER_TOLERANCE_NS: Final = 300 * SECOND_NS
MILLISECOND_NS: Final = 1_000_000
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_NONCE: Final = re.compile(r"[\x21-\x7e]{1,128}")
_TIME: Final = re.compile(r"[0-9]{1,16}")
_ID: Final = re.compile(r"[\x21-\x7e]{1,256}")

Keys = Callable[[int], Sequence[tuple[str, bytes]]]
"""The keys that were valid at a time, each with the name that a log may show."""


@dataclass(frozen=True, slots=True)
class VerifiedSignature:
    """A request whose signature is right. `tag` is the verified one where it covers a time, and empty otherwise."""

    key: str
    form: str
    signed_unix_ns: int | None
    tag: bytes = b""
    signed_id: str = ""
    """The delivery id, where the signature covers it."""


@dataclass(frozen=True, slots=True)
class SignatureRefusal:
    """A request that is not let in: a stable reason, and a sentence without anything from the request in it."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """The claims of a request: tags, the time that they cover, and the texts that may have been signed."""

    tags: tuple[bytes, ...]
    signed_unix_ns: int | None
    texts: tuple[tuple[str, tuple[bytes, ...]], ...]
    signed_id: str = ""


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """The form in which a provider signs."""

    claim: Callable[[EdgeRequest, bytes], _Claim | SignatureRefusal]
    delivery_ids: tuple[str, ...] = ()
    """Headers with the sender's own id, the best first."""
    token: bool = False
    """It shows its secret and signs nothing."""
    standard_key: bool = False
    """Keys are base64 behind `whsec_`."""
    covers_time: bool = True
    """The signature covers a time, so that its tag is good once."""
    signed_ids: tuple[str, ...] = ()
    """Headers with the sender's own id that the signature covers."""


def verify(
    auth: HmacAuth, request: EdgeRequest, body: bytes, *, keys: Keys, now_unix_ns: int
) -> VerifiedSignature | SignatureRefusal:
    """Judge a request; `keys` is asked for the time that was signed, or for now where none is."""
    form = PROVIDERS[auth.provider] if auth.provider else None
    claim = form.claim(request, body) if form else _own_claim(auth, request, body)
    if isinstance(claim, SignatureRefusal):
        return claim
    tolerance = PROVIDER_TOLERANCE_NS if form else auth.tolerance_ns
    signed = claim.signed_unix_ns
    if signed is not None and abs(now_unix_ns - signed) > tolerance:
        early = "ahead of" if signed > now_unix_ns else "behind"
        off = abs(now_unix_ns - signed) // SECOND_NS
        return SignatureRefusal(
            "timestamp-outside-window",
            f"The signed time is {off} s {early} this machine's clock; {tolerance // SECOND_NS} s are permitted.",
        )
    found = keys(now_unix_ns if signed is None else signed)
    if not found:
        return SignatureRefusal("no-valid-key", "No secret of the route was valid at the signed time.")
    return _compare(claim, form, found)


def _compare(
    claim: _Claim, form: ProviderForm | None, keys: Sequence[tuple[str, bytes]]
) -> VerifiedSignature | SignatureRefusal:
    right: VerifiedSignature | None = None
    for name, secret in keys:
        key = standard_key(secret) if form is not None and form.standard_key else secret
        for text, parts in claim.texts:
            # A token is compared by its digest: its length is a secret, too.
            tag = hashlib.sha256(key).digest() if form is not None and form.token else _tag(key, parts)
            for shown in claim.tags:
                # Every one is compared: the time must not tell which came close.
                same = hmac.compare_digest(shown, tag)
                if same and right is None:
                    covered = tag if claim.signed_unix_ns is not None else b""
                    right = VerifiedSignature(name, text, claim.signed_unix_ns, covered, claim.signed_id)
    if right is None:
        many = "one secret" if len(keys) == 1 else f"{len(keys)} secrets"
        return SignatureRefusal(
            "signature-mismatch",
            f"The signature is not that of this body: {many} of the route, and {len(claim.texts)} signed "
            f"form{'s' if len(claim.texts) > 1 else ''}, were tried.",
        )
    return right


def _tag(key: bytes, parts: tuple[bytes, ...]) -> bytes:
    if len(parts) == 1:
        return hmac.digest(key, parts[0], "sha256")
    made = hmac.new(key, digestmod="sha256")
    for part in parts:
        made.update(part)
    return made.digest()


def _own_claim(auth: HmacAuth, request: EdgeRequest, body: bytes) -> _Claim | SignatureRefusal:
    signature = request.header(auth.signature_header.lower())
    stamp = request.header(auth.timestamp_header.lower())
    nonce = request.header(auth.nonce_header.lower())
    for value, name in (
        (signature, auth.signature_header),
        (stamp, auth.timestamp_header),
        (nonce, auth.nonce_header),
    ):
        if value is None:
            return _absent(name)
    assert signature is not None and stamp is not None and nonce is not None
    if not _HEX.fullmatch(signature):
        return _malformed(auth.signature_header, "64 hexadecimal digits")
    if not _NONCE.fullmatch(nonce):
        return _malformed(auth.nonce_header, "1 to 128 visible characters")
    time = _time(stamp, SECOND_NS)
    if time is None:
        return _malformed(auth.timestamp_header, "seconds since 1970")
    digest = hashlib.sha256(body).hexdigest()
    whole = f"{request.path}?{request.query}" if request.query else request.path
    return _Claim(
        (bytes.fromhex(signature),),
        time,
        (
            ("v2", (f"v2\n{request.method}\n{whole}\n{stamp}\n{nonce}\n{digest}".encode("latin-1"),)),
            ("time-first", (f"{stamp}\n{request.method}\n{request.path}\n{digest}".encode("latin-1"),)),
            ("method-first", (f"{request.method}\n{request.path}\n{stamp}\n{digest}".encode("latin-1"),)),
        ),
    )


def _of_body(name: str, prefix: str = "") -> Callable[[EdgeRequest, bytes], _Claim | SignatureRefusal]:
    """Hexadecimal, over the body alone."""

    def claim(request: EdgeRequest, body: bytes) -> _Claim | SignatureRefusal:
        value = request.header(name.lower())
        if value is None:
            return _absent(name)
        text = value.removeprefix(prefix)
        if not value.startswith(prefix) or not _HEX.fullmatch(text):
            return _malformed(
                name, f"`{prefix}` and 64 hexadecimal digits" if prefix else "64 hexadecimal digits"
            )
        return _Claim((bytes.fromhex(text),), None, (("body", (body,)),))

    return claim


def _timed_pairs(
    name: str, tag: str, unit_ns: int
) -> Callable[[EdgeRequest, bytes], _Claim | SignatureRefusal]:
    """`t=…,v1=…`: hexadecimal over time, dot and body. During a roll several tags are shown; all are tried."""

    def claim(request: EdgeRequest, body: bytes) -> _Claim | SignatureRefusal:
        value = request.header(name.lower())
        if value is None:
            return _absent(name)
        stamp = ""
        tags: list[bytes] = []
        for pair in value.split(",")[: 2 * MOST_TAGS]:
            key, _, text = pair.strip().partition("=")
            if key == "t":
                if stamp:
                    return _malformed(name, "one time")
                stamp = text
            elif key == tag and _HEX.fullmatch(text) and len(tags) < MOST_TAGS:
                tags.append(bytes.fromhex(text))
        time = _time(stamp, unit_ns)
        if time is None or not tags:
            return _malformed(name, f"`t=` with a time and `{tag}=` with 64 hexadecimal digits")
        return _Claim(tuple(tags), time, (("time.body", (stamp.encode() + b".", body)),))

    return claim


def _slack(request: EdgeRequest, body: bytes) -> _Claim | SignatureRefusal:
    value, stamp = request.header("x-slack-signature"), request.header("x-slack-request-timestamp")
    if value is None or stamp is None:
        return _absent("X-Slack-Signature" if value is None else "X-Slack-Request-Timestamp")
    text, time = value.removeprefix("v0="), _time(stamp, SECOND_NS)
    if not value.startswith("v0=") or not _HEX.fullmatch(text):
        return _malformed("X-Slack-Signature", "`v0=` and 64 hexadecimal digits")
    if time is None:
        return _malformed("X-Slack-Request-Timestamp", "seconds since 1970")
    return _Claim((bytes.fromhex(text),), time, (("v0:time:body", (f"v0:{stamp}:".encode(), body)),))


def _shopify(request: EdgeRequest, body: bytes) -> _Claim | SignatureRefusal:
    value = request.header("x-shopify-hmac-sha256")
    if value is None:
        return _absent("X-Shopify-Hmac-Sha256")
    tag = _base64(value)
    if tag is None:
        return _malformed("X-Shopify-Hmac-Sha256", "base64 of 32 bytes")
    return _Claim((tag,), None, (("body", (body,)),))


def _gitlab(request: EdgeRequest, _body: bytes) -> _Claim | SignatureRefusal:
    value = request.header("x-gitlab-token")
    if value is None:
        return _absent("X-Gitlab-Token")
    return _Claim((hashlib.sha256(value.encode("latin-1")).digest(),), None, (("token", ()),))


def _standard(request: EdgeRequest, body: bytes) -> _Claim | SignatureRefusal:
    prefix = "webhook" if request.has("webhook-signature") or not request.has("svix-signature") else "svix"
    names = [f"{prefix}-{part}" for part in ("id", "timestamp", "signature")]
    identifier, stamp, value = (request.header(name) for name in names)
    if identifier is None or stamp is None or value is None:
        return _absent(next(n for n, v in zip(names, (identifier, stamp, value), strict=True) if v is None))
    # A dot in the id would let its end pass for the beginning of the time.
    if not _ID.fullmatch(identifier) or "." in identifier:
        return _malformed(names[0], "visible characters without a dot")
    time = _time(stamp, SECOND_NS)
    if time is None:
        return _malformed(names[1], "seconds since 1970")
    tags: list[bytes] = []
    for each in value.split(" ")[: 2 * MOST_TAGS]:
        version, _, text = each.partition(",")
        if version == "v1" and len(tags) < MOST_TAGS and (tag := _base64(text)) is not None:
            tags.append(tag)
    if not tags:
        return _malformed(names[2], "`v1,` and base64 of 32 bytes")
    return _Claim(
        tuple(tags),
        time,
        (("id.time.body", (f"{identifier}.{stamp}.".encode(), body)),),
        signed_id=identifier,
    )


def standard_key(secret: bytes) -> bytes:
    """The key of a Standard Webhooks secret: base64 behind `whsec_`, or the bytes as they are."""
    if not secret.startswith(b"whsec_"):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(b"whsec_") + b"==", validate=False) or secret
    except (binascii.Error, ValueError):
        return secret


PROVIDERS: Final[dict[str, ProviderForm]] = {
    "github": ProviderForm(
        _of_body("X-Hub-Signature-256", "sha256="), ("x-github-delivery",), covers_time=False
    ),
    "gitea": ProviderForm(_of_body("X-Gitea-Signature"), ("x-gitea-delivery",), covers_time=False),
    "stripe": ProviderForm(_timed_pairs("Stripe-Signature", "v1", SECOND_NS)),
    "cituro": ProviderForm(_timed_pairs("X-CITURO-SIGNATURE", "s", MILLISECOND_NS)),
    "slack": ProviderForm(_slack),
    "shopify": ProviderForm(_shopify, ("x-shopify-webhook-id",), covers_time=False),
    # `X-Gitlab-Event-UUID` is shared by hooks that set each other off: as an id it would swallow events.
    "gitlab": ProviderForm(_gitlab, ("idempotency-key",), token=True, covers_time=False),
    "standard_webhooks": ProviderForm(_standard, standard_key=True, signed_ids=("webhook-id", "svix-id")),
}
"""By the name that `provider` takes."""


def _time(text: str, unit_ns: int) -> int | None:
    return int(text) * unit_ns if _TIME.fullmatch(text) and text.isascii() else None


def _base64(text: str) -> bytes | None:
    try:
        tag = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return tag if len(tag) == 32 else None


def _absent(name: str) -> SignatureRefusal:
    return SignatureRefusal(
        "signature-missing", f"The header `{name}` is missing, or is there more than once."
    )


def _malformed(name: str, expected: str) -> SignatureRefusal:
    return SignatureRefusal("signature-malformed", f"The header `{name}` does not hold {expected}.")
