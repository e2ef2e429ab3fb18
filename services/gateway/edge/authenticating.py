"""Judges who sent a request: user and password, client certificate, or signature.

Never takes longer for a user that exists than for one that does not, and never names to the sender which secret was
tried.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from services.gateway.edge.running_plan import RunningRoute
from snavio.edge.requests import EdgeRequest
from snavio.edge.signatures import SignatureRefusal, VerifiedSignature, verify

_NOBODY: Final = hashlib.sha256(b"nobody").digest()
MOST_AUTHORIZATION: Final = 4096


def basic_user(running: RunningRoute, request: EdgeRequest) -> str | None:
    """The user of `Authorization: Basic`, when its password is right."""
    value = request.header("authorization") or ""
    scheme, _, text = value.partition(" ")
    try:
        if scheme.lower() != "basic" or len(value) > MOST_AUTHORIZATION:
            raise ValueError
        shown = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        shown = b""
    user = shown.partition(b":")[0]
    # A user that does not exist is compared, too, with a password that nobody has.
    expected = running.credentials.get(hashlib.sha256(user).digest())
    same = hmac.compare_digest(hashlib.sha256(shown).digest(), expected or _NOBODY)
    return user.decode("utf-8", "replace") if same and expected is not None else None


def before_body(running: RunningRoute, request: EdgeRequest, notes: RequestNotes) -> EdgeAnswer | None:
    """Judge what needs no body; the answer when it speaks against the request."""
    auth = running.route.auth
    if auth.identities:
        if request.certificate not in auth.identities:
            shown = (
                "another certificate was shown" if request.certificate else "no client certificate was shown"
            )
            notes.refused("auth", f"mtls: {shown}")
            return EdgeAnswer(
                401, "certificate-required", "A client certificate of a permitted identity is required."
            )
        notes.caller = request.certificate
        notes.passed("auth", f"mtls: {request.certificate}")
    if auth.basic:
        user = basic_user(running, request)
        if user is None:
            absent = request.header("authorization") is None
            notes.refused(
                "auth", "basic: no credentials were shown" if absent else "basic: wrong user or password"
            )
            return EdgeAnswer(
                401,
                "unauthorized",
                "A user and its password are required.",
                headers=((b"www-authenticate", b'Basic realm="snavio", charset="UTF-8"'),),
            )
        notes.caller = f"basic:{user}"
        notes.passed("auth", f"basic: user {user}")
    return None


def signature(
    running: RunningRoute, request: EdgeRequest, body: bytes, notes: RequestNotes, *, now_unix_ns: int
) -> VerifiedSignature | EdgeAnswer:
    """Judge the signature of a route with `auth hmac`."""
    auth = running.route.auth.hmac
    assert auth is not None and running.keys is not None
    outcome = verify(auth, request, body, keys=running.keys, now_unix_ns=now_unix_ns)
    name = auth.provider or "hmac"
    if isinstance(outcome, SignatureRefusal):
        notes.refused("auth", f"{name}: {outcome.reason}. {outcome.sentence}")
        # Which of these it was helps somebody who guesses; whoever owns the edge sees it in `explain`.
        return EdgeAnswer(401, outcome.reason, "The signature of this request was not accepted.")
    notes.passed("auth", f"{name}: {outcome.key}, signed form {outcome.form}")
    return outcome
