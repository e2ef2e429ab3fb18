"""Shield's judgement of a command that was signed with a certain key."""

from __future__ import annotations

from snavio.domain.verdict import Verdict
from snavio.native import Admission, sign_command, uuid7
from snavio.v1.signer_pb2 import KeyVersion

SOURCE, AUDIENCE = "acme/billing", "shield-0:1"


def admitting() -> Admission:
    """A judgement that knows no key yet."""
    return Admission(audience=AUDIENCE, nonce_capacity=1000, nonce_share_per_tenant=1000)


def judged(admission: Admission, key: KeyVersion, *, now_unix_ns: int) -> Verdict:
    """The verdict on a fresh command of `SOURCE`, signed now."""
    command = sign_command(
        key.secret,
        key_version=key.version,
        audience=AUDIENCE,
        command_id=uuid7(),
        timestamp_unix_ns=now_unix_ns,
        target="bot",
        name="notify",
        payload=b"",
    )
    found = admission.judge_one(
        command, source=SOURCE, cert_serial="1", now_unix_ns=now_unix_ns, budget_ms=1000
    )
    return Verdict(found.ledger.codes[0])
