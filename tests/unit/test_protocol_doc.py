"""docs/protocol.md against the code: a producer written from that page alone must work."""

import ast
import hmac
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from cryptography import x509

from services.shield import refused_batch
from services.shield import servicer as shield
from services.shield.settings import ShieldSettings
from services.signer.certificates.issuing import MAX_ASSUMED_S
from services.signer.settings import SignerSettings
from snavio import errors
from snavio.clock import SystemClock
from snavio.config import MeshSettings
from snavio.domain.enrolment import Token
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.keyset import SECRET_BYTES
from snavio.domain.verdict import Verdict
from snavio.hop import server_stream
from snavio.native import Admission, hmac_sha256, parse_timestamp, read_verdicts, sign_command
from snavio.pki import BACKDATE_S, make_ca, make_csr, make_key
from snavio.rpc import auth_interceptor, body, call, open_calls, peer, renewal
from snavio.rpc import connection_options as transport
from snavio.rpc import limits as rpc_limits
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.peer import Peer
from snavio.rpc.server import MeshServer
from snavio.rpc.status import code_of
from snavio.v1.batch_pb2 import BatchHeader
from snavio.v1.command_pb2 import Command
from snavio.v1.shield_pb2 import Submission
from tests.support.twin import signed_text

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text("utf-8")
FIELD_NAMES = [field.name for field in Command.DESCRIPTOR.fields]


def table(header: str) -> list[list[str]]:
    """The rows, cell by cell, of the one table whose header begins with `header`."""
    assert PAGE.count(f"\n{header}") == 1, header
    _, _, below = PAGE.partition(f"\n{header}")
    rows = []
    for line in below.splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def example(label: str) -> str:
    """The fenced block after the comment with this label."""
    found = re.findall(rf"<!-- example: {label} -->\n```\n(.*?)\n```\n", PAGE, re.DOTALL)
    assert len(found) == 1, label
    block: str = found[0]
    return block


def example_bytes(label: str) -> bytes:
    return bytes.fromhex("".join(example(label).split()))


def example_fields() -> dict[str, str]:
    _, _, section = PAGE.partition("### Worked example")
    rows = re.findall(r"^\| ([^|]+) \| `(.*)` \|$", section.partition("The signed text")[0], re.MULTILINE)
    return {name.split(" (")[0].strip("`"): value for name, value in rows}


FIELDS = example_fields()
SECRET = bytes.fromhex(FIELDS.pop("secret"))
SOURCE = FIELDS.pop("source")
SIGNED_UNIX_NS = parse_timestamp(FIELDS["timestamp"])
MESH, SHIELD = MeshSettings.model_validate({}), ShieldSettings.model_validate({})


def sign(**changed: str | bytes) -> bytes:
    """The example's command with some fields changed, signed natively."""
    fields: dict[str, str | bytes] = {**FIELDS, "payload": FIELDS["payload"].encode(), **changed}
    named = ("key_version", "audience", "target", "name", "payload", "content_type", "traceparent")
    return sign_command(
        SECRET,
        command_id=FIELDS["id"],
        timestamp_unix_ns=SIGNED_UNIX_NS,
        **{name: fields[name] for name in named},  # type: ignore[arg-type]
    )


def admission(*, capacity: int = 100, revoked: bool = False, not_after: int = 0) -> Admission:
    """A Shield that knows the example's source and key."""
    judge = Admission(
        audience=FIELDS["audience"], nonce_capacity=capacity, nonce_share_per_tenant=max(capacity, 1)
    )
    judge.set_keyset(SOURCE, [(FIELDS["key_version"], SECRET, 0, not_after, revoked)])
    return judge


def verdict(judge: Admission, command: bytes, *, now_unix_ns: int = SIGNED_UNIX_NS) -> Verdict:
    """Shield's verdict on one command; UNDECIDED when it is admitted."""
    judgement = judge.judge_one(command, source=SOURCE, cert_serial="1", now_unix_ns=now_unix_ns, budget_ms=0)
    return Verdict(judgement.frame_code or judgement.ledger.codes[0])


# -- the worked example ----------------------------------------------------------------------------------


def test_the_example_signs_its_fields_in_the_order_of_the_template() -> None:
    text = example("template").replace("<payload length>", str(len(FIELDS["payload"].encode())))
    for name in (
        "key_version",
        "audience",
        "id",
        "timestamp",
        "type",
        "target",
        "name",
        "content_type",
        "payload",
    ):
        assert text.count(f"<{name}>") == 1
        text = text.replace(f"<{name}>", FIELDS[name])
    assert text == example("signed text")


def test_the_examples_text_is_what_the_plain_twin_signs() -> None:
    assert (
        signed_text({name: value.encode() for name, value in FIELDS.items()})
        == example("signed text").encode()
    )


def test_the_examples_tag_is_the_hmac_of_its_text() -> None:
    text = example("signed text").encode()
    assert f"signed text, {len(text)} bytes" in PAGE
    assert hmac.digest(SECRET, text, "sha256") == example_bytes("tag") == hmac_sha256(SECRET, text)


def test_the_native_signer_writes_the_examples_command() -> None:
    assert sign() == example_bytes("command")
    assert f"`Command`, {len(example_bytes('command'))} bytes" in PAGE


def test_a_plain_protobuf_library_writes_the_examples_command() -> None:
    texts = {name: FIELDS[name] for name in FIELD_NAMES if name in FIELDS and name != "payload"}
    command = Command(hmac=example_bytes("tag"), payload=FIELDS["payload"].encode(), **texts)
    assert command.SerializeToString(deterministic=True) == example_bytes("command")


def test_shield_admits_the_example_once() -> None:
    judge = admission()
    frame = example_bytes("submission prefix") + example_bytes("command")
    header = BatchHeader(batch_seq=1, budget_ms=5000)
    assert Submission(header=header, command=[example_bytes("command")]).SerializeToString() == frame

    first = judge.judge(frame, source=SOURCE, cert_serial="1", now_unix_ns=SIGNED_UNIX_NS)
    assert (first.accepted, first.budget_ms) == (1, 5000)
    assert first.ledger.close(Verdict.DELIVERED, 0, "") == example_bytes("delivered")

    second = judge.judge(frame, source=SOURCE, cert_serial="1", now_unix_ns=SIGNED_UNIX_NS)
    assert second.ledger.opening() == example_bytes("replayed")
    assert read_verdicts(example_bytes("replayed")).codes == bytes([Verdict.REPLAYED])


# -- fields ----------------------------------------------------------------------------------------------


def test_the_field_table_has_every_field_of_a_command_with_its_number() -> None:
    rows = [(int(number), name.strip("`")) for number, name, *_ in table("| no. | field |")]
    assert rows == [(field.number, field.name) for field in Command.DESCRIPTOR.fields]


@pytest.mark.parametrize("name", ["key_version", "audience", "target", "name", "content_type"])
def test_shield_and_page_agree_on_every_character_and_length(name: str) -> None:
    form = next(row[2].strip("`") for row in table("| no. | field |") if row[1] == f"`{name}`")
    shortest, _, longest = next(
        row[3] for row in table("| no. | field |") if row[1] == f"`{name}`"
    ).partition(" to ")
    texts = [chr(code) for code in range(128)] + [f"a{chr(code)}" for code in range(128)]
    texts += ["", "a" * int(longest), "a" * (int(longest) + 1)]
    for text in texts:
        assert _signs(name, text) is (re.fullmatch(form, text) is not None), repr(text)
    assert _signs(name, "") is (shortest == "0")


def _signs(name: str, text: str) -> bool:
    try:
        sign(**{name: text})
    except ValueError:
        return False
    return True


# -- checks ----------------------------------------------------------------------------------------------


def test_shield_makes_its_checks_in_the_order_of_the_page() -> None:
    """A command with every fault at once, corrected one by one: each time the next row of the table answers."""
    command = Command(
        id="?", timestamp="?", type="?", key_version="?", audience="?", hmac=b"?", target="?", name="?",
        content_type="\n", payload=bytes(shield.MAX_PAYLOAD_BYTES + 1), traceparent="?", source="",
    )  # fmt: skip
    late = SIGNED_UNIX_NS + SHIELD.window_ms * 1_000_000 + 1
    suspended = Admission(audience="elsewhere", nonce_capacity=1, nonce_share_per_tenant=1)
    suspended.set_suspended(SOURCE, True)

    heard = [verdict(suspended, command.SerializeToString() + b"\x6a\x00")]

    def hear(mend: Callable[[], object], judge: Admission = suspended, now_unix_ns: int = late) -> None:
        heard.append(verdict(judge, command.SerializeToString(), now_unix_ns=now_unix_ns))
        mend()

    hear(lambda: command.ClearField("source"))
    hear(lambda: command.ClearField("payload"))
    for name in ("id", "timestamp", "type", "key_version", "audience"):
        hear(lambda name=name: setattr(command, name, FIELDS[name]))  # type: ignore[misc]
    hear(lambda: setattr(command, "hmac", bytes(32)))
    for name in ("target", "name", "content_type", "traceparent"):
        hear(lambda name=name: setattr(command, name, FIELDS[name]))  # type: ignore[misc]
    hear(lambda: setattr(command, "audience", "another"))

    ended = SIGNED_UNIX_NS
    hear(lambda: None, Admission(audience="elsewhere", nonce_capacity=1, nonce_share_per_tenant=1))
    hear(lambda: None, admission(revoked=True, not_after=ended))
    hear(lambda: None, admission(not_after=ended))
    hear(lambda: setattr(command, "audience", FIELDS["audience"]), admission())
    hear(lambda: None, admission())
    hear(lambda: command.MergeFromString(example_bytes("command")), admission(), SIGNED_UNIX_NS)

    seen = admission(capacity=1)
    assert verdict(seen, command.SerializeToString()) is Verdict.UNDECIDED
    hear(lambda: command.MergeFromString(sign(payload=b"another")), seen, SIGNED_UNIX_NS)
    hear(lambda: None, seen, SIGNED_UNIX_NS)

    rows = [refused for _, refused in table("| check | refused as |")]
    assert [f"`{each.reason}`" for each in heard] == [row for row in rows if "whole batch" not in row]


def test_a_frame_that_is_too_large_or_unreadable_is_refused_whole_as_the_page_says() -> None:
    judge = admission()
    frames = [Submission(command=[b""] * (refused_batch.MAX_BATCH_COMMANDS + 1)).SerializeToString(), b"\x1a"]
    codes = []
    for frame in frames:
        judgement = judge.judge(frame, source=SOURCE, cert_serial="1", now_unix_ns=SIGNED_UNIX_NS)
        reply = read_verdicts(judgement.ledger.opening())
        assert (reply.codes, reply.final, [refusal[0] for refusal in reply.refusals()]) == (b"", True, [0])
        codes.append(Verdict(judgement.frame_code).reason)
    rows = [refused for _, refused in table("| check | refused as |") if "whole batch" in refused]
    assert rows == [f"`{code}`, whole batch" for code in codes]


def test_the_window_includes_both_of_its_ends() -> None:
    window_ns = SHIELD.window_ms * 1_000_000
    for skew, expected in (
        (window_ns, Verdict.UNDECIDED),
        (window_ns + 1, Verdict.TIMESTAMP_OUTSIDE_WINDOW),
    ):
        for now in (SIGNED_UNIX_NS - skew, SIGNED_UNIX_NS + skew):
            assert verdict(admission(), example_bytes("command"), now_unix_ns=now) is expected


# -- errors of a call ------------------------------------------------------------------------------------

# The modules that a producer's call or stream passes through, and that can end it.
ON_THE_WAY = [refused_batch, shield, server_stream, call, body, auth_interceptor, open_calls, peer]


def raised(module: ModuleType) -> set[tuple[str, str]]:
    """Status and reason of every error that a module raises for its caller, read from its source."""
    told = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = getattr(errors, node.func.id, None)
            given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            constant = [each.value for each in given if isinstance(each, ast.Constant)]
            if kind is not None and len(constant) == len(given):
                error = kind("", **({"retry_after_ms": 1} if kind is errors.Saturated else {}))
                told.add((code_of(error).name, str(constant[0]) if constant else error.reason))
    return told


def test_every_error_that_ends_a_producers_call_stands_in_the_table() -> None:
    rows = {
        (status.strip("`"), reason.strip("` "))
        for status, reasons, _ in table("| status | `snavio-reason` |")
        for reason in reasons.split(",")
    }
    made = {entry for module in ON_THE_WAY for entry in raised(module)}
    # For a caller that has disconnected: there is no reader.
    made.remove(("UNAVAILABLE", "peer-gone"))
    assert ("INVALID_ARGUMENT", "oversized") in made
    assert made <= rows


def test_what_the_gate_says_stands_in_the_table_of_errors() -> None:
    told = {row[1]: row[0] for row in table("| status | `snavio-reason` |")}
    billing, clock = Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme"), SystemClock()
    gate = CertificateGate(clock=clock)
    gate.revoke(["bad"])
    gate.expect_news(within_s=1)
    for serial, ends_unix_ns in (("bad", 2**62), ("1", 0), ("1", 2**62)):
        with pytest.raises(errors.SnavioError) as refused:
            gate.require(Peer(billing, serial, ends_unix_ns))
        status = next(told[reasons] for reasons in told if f"`{refused.value.reason}`" in reasons)
        assert status == f"`{code_of(refused.value).name}`"


def test_a_header_may_stand_where_the_page_says() -> None:
    header, body = Submission(header=BatchHeader(batch_seq=7)), example_bytes("command")
    commands = Submission(command=[body]).SerializeToString()
    for frame in (
        header.SerializeToString() + commands,
        commands + header.SerializeToString() + commands,
        commands + header.SerializeToString(),
    ):
        judged = admission().judge(frame, source=SOURCE, cert_serial="1", now_unix_ns=SIGNED_UNIX_NS)
        assert (judged.frame_code, judged.ledger.batch_seq, judged.ledger.count > 0) == (0, 7, True)
    twice = header.SerializeToString() * 2 + commands
    judged = admission().judge(twice, source=SOURCE, cert_serial="1", now_unix_ns=SIGNED_UNIX_NS)
    assert judged.frame_code == Verdict.MALFORMED


# -- tables ----------------------------------------------------------------------------------------------


def test_the_verdict_table_lists_exactly_the_verdicts() -> None:
    rows = [(int(code), reason.strip("`")) for code, reason, *_ in table("| code | reason |")]
    assert rows == [(each.value, each.reason) for each in Verdict]


def test_the_verdict_table_says_again_where_the_sdk_tries_again() -> None:
    again = {int(row[0]): row[3] for row in table("| code | reason |")}
    assert again == {each.value: "yes" if each.retryable else "no" for each in Verdict}


def test_every_verdict_has_a_meaning_and_an_advice() -> None:
    assert all(len(row) == 5 and all(row) for row in table("| code | reason |"))


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    served = inspect.signature(MeshServer.__init__).parameters
    signer = SignerSettings()
    known = {
        "wire version": max(server_stream.WIRE_VERSIONS),
        "bytes of one serialised batch": shield.MAX_BATCH_BYTES,
        "commands in one batch": refused_batch.MAX_BATCH_COMMANDS,
        "bytes of one payload": shield.MAX_PAYLOAD_BYTES,
        "batches in flight on a stream": SHIELD.batches_in_flight,
        "half width of the window": SHIELD.window_ms,
        "budget of a command": MESH.budget_ms,
        "bytes of an HMAC secret": SECRET_BYTES,
        "bytes of a tag": len(hmac_sha256(SECRET, b"")),
        "bytes of one gRPC message": rpc_limits.MAX_FRAME_BYTES,
        "time for a request, or for the first message of a stream": rpc_limits.FIRST_READ_S,
        "silence on a stream, before it ends in order": rpc_limits.IDLE_STREAM_S,
        "longest unary call to Shield": shield.ANSWER_SECONDS,
        "longest life of a stream": served["max_connection_age_s"].default,
        "time for the first Hello": server_stream.HELLO_SECONDS,
        "shortest pause between pings": transport.MIN_PING_INTERVAL_S,
        "tags remembered, in all": SHIELD.nonce_capacity,
        "tags remembered, per tenant": MESH.share("nonces", SHIELD.nonce_capacity).per_tenant,
        "life of a service certificate": signer.service_ttl_s,
        "pause before keys are asked for again": signer.poll_after_s,
    }
    assert {row[0]: int(row[1]) for row in table("| limit | value |")} == known


def test_the_payloads_bound_in_the_field_table_is_the_limit() -> None:
    rows = {row[1]: row[3] for row in table("| no. | field |")}
    assert rows["`payload`"] == f"0 to {shield.MAX_PAYLOAD_BYTES}"


# -- enrolment -------------------------------------------------------------------------------------------


def test_a_token_has_the_form_of_the_page() -> None:
    _, fingerprint, secret = Token(bytes(range(32)), bytes(32)).text.split(".")
    assert re.fullmatch(r"[0-9a-f]{64}", fingerprint) and re.fullmatch(r"[a-z2-7]{56}", secret)
    assert "snv1.<SHA-256 of the CA's certificate, DER, as 64 hex digits>.<56 characters a-z 2-7>" in PAGE


def test_certificates_are_dated_back_and_renewed_as_the_page_says() -> None:
    assert (BACKDATE_S, renewal.DUE, renewal.JITTER) == (5 * 60, 2 / 3, 1 / 10)
    assert "dates\ncertificates back by five minutes" in PAGE
    assert "two thirds of a certificate's life are over, or up to a tenth earlier" in PAGE
    assert MAX_ASSUMED_S == 3600


def test_a_newcomer_finds_in_the_ca_what_the_page_tells_it_to_look_for() -> None:
    ca = make_ca(now_unix_ns=SIGNED_UNIX_NS, trust_domain="mesh.example")
    names = ca.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://mesh.example"]
    request = x509.load_pem_x509_csr(make_csr(make_key()))
    assert not list(request.subject) and not list(request.extensions)
