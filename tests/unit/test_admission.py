"""Every bad input has its own stable code, leaves its neighbours alone, and touches no nonce."""

from __future__ import annotations

import hmac
import random

import pytest

from snavio import native
from snavio.domain.verdict import Verdict
from snavio.v1 import batch_pb2, command_pb2, shield_pb2, telemetry_pb2
from tests.support import twin
from tests.support.frames import rows

NS = 1_000_000_000
SAMPLE = telemetry_pb2.EVENT_KIND_SKEW_SAMPLE
NOW = 1_790_000_000 * NS
AUDIENCE = "shield-0:01"
SOURCE = "acme/billing"
OTHER = "globex/mailer"
SECRET = bytes(range(32))
OTHER_SECRET = bytes(range(32, 64))
TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def fields(number: int = 0, **changes: bytes | None) -> dict[str, bytes]:
    """The fields of a valid command; None removes one."""
    good: dict[str, bytes] = {
        "id": f"0190a5b2-7c00-7000-8000-{number + 1:012x}".encode(),
        "timestamp": twin.format_timestamp(NOW).encode(),
        "type": b"snavio.command-sent",
        "key_version": b"hmac-v1",
        "audience": AUDIENCE.encode(),
        "target": b"discord-bot",
        "name": b"delete-user",
        "content_type": b"application/json",
        "payload": b'{"user":7}',
    }
    for name, value in changes.items():
        if value is None:
            good.pop(name, None)
        else:
            good[name] = value
    return good


def signed(number: int = 0, *, secret: bytes = SECRET, **changes: bytes | None) -> bytes:
    return twin.sign(secret, fields(number, **changes))


def admission(**limits: int) -> native.Admission:
    shield = native.Admission(audience=AUDIENCE, **limits)
    shield.set_keyset(SOURCE, [("hmac-v1", SECRET, 0, 0, False)])
    shield.set_keyset(OTHER, [("hmac-v1", OTHER_SECRET, 0, 0, False), ("hmac-v7", OTHER_SECRET, 0, 0, False)])
    return shield


def judge(
    shield: native.Admission, *commands: bytes, source: str = SOURCE, now: int = NOW
) -> native.Judgement:
    frame = twin.submission(list(commands), batch_seq=9, budget_ms=4000)
    return shield.judge(frame, source=source, cert_serial="0a1b", now_unix_ns=now)


def live(shield: native.Admission) -> int:
    return shield.counters()["nonces_live"]


def hmac_of(length: int) -> bytes:
    tag = twin.tag_of(SECRET, fields())
    return twin.encode({**fields(), "hmac": (tag + b"\x00")[:length]})


def random_bytes(seed: int) -> bytes:
    return random.Random(seed).randbytes(200)


def stamped(text: bytes) -> bytes:
    return signed(timestamp=text)


GOOD = signed(500)
BAD: dict[str, tuple[bytes, Verdict]] = {
    "random bytes": (random_bytes(1), Verdict.MALFORMED),
    "other random bytes": (random_bytes(2), Verdict.MALFORMED),
    "truncated by a byte": (signed()[:-1], Verdict.MALFORMED),
    "truncated within its first field": (signed()[:5], Verdict.MALFORMED),
    "truncated after a tag": (signed() + b"\x5a", Verdict.MALFORMED),
    "a length past the end": (signed() + b"\x5a\x05ab", Verdict.MALFORMED),
    "a length of ten bytes": (signed() + b"\x5a" + b"\xff" * 9 + b"\x01", Verdict.MALFORMED),
    "an over-long length": (signed() + b"\x5a\x80\x00", Verdict.MALFORMED),
    "an over-long tag": (signed() + b"\xda\x00\x00", Verdict.MALFORMED),
    "unknown field 13": (signed() + twin.put(13, b"x"), Verdict.MALFORMED),
    "unknown field 1000": (signed() + twin.put(1000, b""), Verdict.MALFORMED),
    "field number 0": (signed() + b"\x02\x00", Verdict.MALFORMED),
    "a group": (signed() + b"\x5b\x5c", Verdict.MALFORMED),
    "a number instead of text": (signed(traceparent=None) + b"\x58\x01", Verdict.MALFORMED),
    "a fixed32": (signed() + b"\x5d\x00\x00\x00\x00", Verdict.MALFORMED),
    "id twice": (signed() + twin.put(1, fields()["id"]), Verdict.MALFORMED),
    "payload twice": (signed() + twin.put(10, b""), Verdict.MALFORMED),
    "source twice": (signed() + twin.put(12, b"") + twin.put(12, b""), Verdict.MALFORMED),
    "name not UTF-8": (signed(name=b"delete\xff"), Verdict.MALFORMED),
    "name with a surrogate": (signed(name=b"\xed\xa0\x80"), Verdict.MALFORMED),
    "source not UTF-8": (signed() + twin.put(12, b"\xff"), Verdict.MALFORMED),
    "traceparent not UTF-8": (signed(traceparent=b"\xc3"), Verdict.MALFORMED),
    "source present but empty": (signed() + twin.put(12, b""), Verdict.SOURCE_PRESENT),
    "source present": (signed() + twin.put(12, SOURCE.encode()), Verdict.SOURCE_PRESENT),
    "source present and id missing": (signed(id=None, source=b""), Verdict.SOURCE_PRESENT),
    "payload over the limit": (signed(payload=bytes((256 << 10) + 1)), Verdict.OVERSIZED),
    "nothing at all": (b"", Verdict.INVALID_ID),
    "id missing": (signed(id=None), Verdict.INVALID_ID),
    "nil id": (signed(id=b"00000000-0000-0000-0000-000000000000"), Verdict.INVALID_ID),
    "upper-case id": (signed(id=b"0190A5B2-7C00-7000-8000-00000000000A"), Verdict.INVALID_ID),
    "id in braces": (signed(id=b"{190a5b2-7c00-7000-8000-00000000000}"), Verdict.INVALID_ID),
    "id without hyphens": (signed(id=b"0190a5b27c0070008000000000000001"), Verdict.INVALID_ID),
    "timestamp missing": (signed(timestamp=None), Verdict.INVALID_TIMESTAMP),
    "timestamp without zone": (stamped(b"2026-09-21T14:13:20"), Verdict.INVALID_TIMESTAMP),
    "timestamp with an offset": (stamped(b"2026-09-21T14:13:20+00:00"), Verdict.INVALID_TIMESTAMP),
    "timestamp with 12 digits": (stamped(b"2026-09-21T14:13:20.123456789012Z"), Verdict.INVALID_TIMESTAMP),
    "timestamp with 10 digits": (stamped(b"2026-09-21T14:13:20.1234567890Z"), Verdict.INVALID_TIMESTAMP),
    "timestamp with a bare dot": (stamped(b"2026-09-21T14:13:20.Z"), Verdict.INVALID_TIMESTAMP),
    "timestamp in lower case": (stamped(b"2026-09-21t14:13:20z"), Verdict.INVALID_TIMESTAMP),
    "timestamp in a leap second": (stamped(b"2026-09-21T14:13:60Z"), Verdict.INVALID_TIMESTAMP),
    "30th of February": (stamped(b"2026-02-30T14:13:20Z"), Verdict.INVALID_TIMESTAMP),
    "timestamp with Arabic digits": (stamped("٢٠٢٦-09-21T14:13:20Z".encode()), Verdict.INVALID_TIMESTAMP),
    "type missing": (signed(type=None), Verdict.INVALID_TYPE),
    "another type": (signed(type=b"snavio.command-replayed"), Verdict.INVALID_TYPE),
    "key version missing": (signed(key_version=None), Verdict.INVALID_KEY_VERSION),
    "key version in upper case": (signed(key_version=b"HMAC-v1"), Verdict.INVALID_KEY_VERSION),
    "key version with a line feed": (signed(key_version=b"hmac-v1\n"), Verdict.INVALID_KEY_VERSION),
    "key version too long": (signed(key_version=b"a" * 65), Verdict.INVALID_KEY_VERSION),
    "audience missing": (signed(audience=None), Verdict.INVALID_AUDIENCE),
    "audience with a space": (signed(audience=b"shield 0"), Verdict.INVALID_AUDIENCE),
    "HMAC missing": (twin.encode(fields()), Verdict.INVALID_HMAC),
    "HMAC of 16 bytes": (hmac_of(16), Verdict.INVALID_HMAC),
    "HMAC of 31 bytes": (hmac_of(31), Verdict.INVALID_HMAC),
    "HMAC of 33 bytes": (hmac_of(33), Verdict.INVALID_HMAC),
    "target missing": (signed(target=None), Verdict.INVALID_TARGET),
    "target in upper case": (signed(target=b"Discord"), Verdict.INVALID_TARGET),
    "target with a slash": (signed(target=b"a/../b"), Verdict.INVALID_TARGET),
    "name missing": (signed(name=None), Verdict.INVALID_NAME),
    "name with a line feed": (signed(name=b"delete\nuser"), Verdict.INVALID_NAME),
    "name with a NUL": (signed(name=b"delete\x00"), Verdict.INVALID_NAME),
    "name with a DEL": (signed(name=b"delete\x7f"), Verdict.INVALID_NAME),
    "name with an umlaut": (signed(name="löschen".encode()), Verdict.INVALID_NAME),
    "content type with a control character": (signed(content_type=b"a\tb"), Verdict.INVALID_CONTENT_TYPE),
    "content type too long": (signed(content_type=b"a" * 129), Verdict.INVALID_CONTENT_TYPE),
    "traceparent of another version": (signed(traceparent=b"01" + TRACE[2:]), Verdict.INVALID_TRACEPARENT),
    "traceparent with a zero trace": (
        signed(traceparent=b"00-" + b"0" * 32 + TRACE[35:]),
        Verdict.INVALID_TRACEPARENT,
    ),
    "key version nobody has": (signed(key_version=b"hmac-v2"), Verdict.UNKNOWN_KEY_VERSION),
    "key version of another source": (
        signed(key_version=b"hmac-v7", secret=OTHER_SECRET),
        Verdict.UNKNOWN_KEY_VERSION,
    ),
    "secret of another source": (signed(secret=OTHER_SECRET), Verdict.HMAC_MISMATCH),
    "wrong audience": (signed(audience=b"shield-0:00"), Verdict.WRONG_AUDIENCE),
    "year 9999": (stamped(b"9999-12-31T23:59:59.999999999Z"), Verdict.TIMESTAMP_OUTSIDE_WINDOW),
    "year 1": (stamped(b"0001-01-01T00:00:00Z"), Verdict.KEY_EXPIRED),
    "stamped too late": (
        stamped(twin.format_timestamp(NOW - 60 * NS - 1).encode()),
        Verdict.TIMESTAMP_OUTSIDE_WINDOW,
    ),
    "stamped too early": (
        stamped(twin.format_timestamp(NOW + 60 * NS + 1).encode()),
        Verdict.TIMESTAMP_OUTSIDE_WINDOW,
    ),
    "a flipped bit in the HMAC": (
        twin.encode(
            {
                **fields(),
                "hmac": bytes(
                    a ^ b for a, b in zip(twin.tag_of(SECRET, fields()), b"\x01" + bytes(31), strict=True)
                ),
            }
        ),
        Verdict.HMAC_MISMATCH,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_command_has_its_code_spares_its_neighbours_and_touches_no_nonce(case: str) -> None:
    command, code = BAD[case]
    shield = admission()
    alone = judge(shield, command)
    assert list(alone.ledger.codes) == [code]
    assert (alone.accepted, alone.runs, alone.frame_code) == (0, b"", 0)
    assert live(shield) == 0

    before, after = signed(1), signed(2)
    among = judge(shield, before, command, after)
    assert list(among.ledger.codes) == [0, code, 0]
    assert [list(run.command) for run in runs_of(among)] == [[before, after]]
    assert live(shield) == 2
    assert shield.counters()[code.reason] == 2


@pytest.mark.parametrize("case", BAD)
def test_bad_command_is_judged_alike_by_judge_one(case: str) -> None:
    command, code = BAD[case]
    shield = admission()
    judgement = shield.judge_one(command, source=SOURCE, cert_serial="0a1b", now_unix_ns=NOW, budget_ms=100)
    assert (list(judgement.ledger.codes), judgement.budget_ms, live(shield)) == ([code], 100, 0)


def runs_of(judgement: native.Judgement) -> list[batch_pb2.Run]:
    return list(batch_pb2.Batch.FromString(judgement.runs).run)


def verdicts_of(judgement: native.Judgement) -> batch_pb2.Verdicts:
    return batch_pb2.Verdicts.FromString(judgement.ledger.opening())


def test_good_commands_become_a_run_with_their_bytes_untouched() -> None:
    commands = [signed(number) for number in range(5)]
    judgement = judge(admission(), *commands)
    expected = batch_pb2.Batch(
        run=[
            batch_pb2.Run(
                source=SOURCE,
                key_version="hmac-v1",
                cert_serial="0a1b",
                admitted_unix_ns=NOW,
                command=commands,
            )
        ]
    )
    assert judgement.runs == expected.SerializeToString()
    assert (judgement.accepted, judgement.budget_ms, judgement.ledger.batch_seq) == (5, 4000, 9)
    assert judgement.ledger.opening() == b""
    assert {row.kind for row in rows(judgement.telemetry(NOW))} <= {SAMPLE}


def test_what_protobuf_writes_is_read() -> None:
    command = command_pb2.Command.FromString(signed(traceparent=TRACE))
    frame = shield_pb2.Submission(
        header=batch_pb2.BatchHeader(batch_seq=3, budget_ms=10), command=[command.SerializeToString()]
    )
    judgement = admission().judge(
        frame.SerializeToString(), source=SOURCE, cert_serial="0a1b", now_unix_ns=NOW
    )
    assert (judgement.accepted, judgement.ledger.batch_seq, judgement.budget_ms) == (1, 3, 10)


def test_a_new_run_starts_where_the_key_version_changes() -> None:
    shield = admission()
    shield.set_keyset(SOURCE, [("v1", SECRET, 0, 0, False), ("v2", OTHER_SECRET, 0, 0, False)])
    versions = [b"v1", b"v1", b"v2", b"v1"]
    secrets = {b"v1": SECRET, b"v2": OTHER_SECRET}
    commands = [signed(n, key_version=v, secret=secrets[v]) for n, v in enumerate(versions)]
    runs = runs_of(judge(shield, *commands))
    assert [(run.key_version, len(run.command)) for run in runs] == [("v1", 2), ("v2", 1), ("v1", 1)]


def test_replies_of_the_next_hop_find_their_way_around_refused_commands() -> None:
    judgement = judge(admission(), signed(0), b"bad", signed(1))
    reply = batch_pb2.Verdicts(batch_seq=1, codes=bytes([1, 65]), final=True).SerializeToString()
    merged = judgement.ledger.merge(0, 0, native.read_verdicts(reply))
    assert list(judgement.ledger.codes) == [Verdict.DELIVERED, Verdict.MALFORMED, Verdict.ACL_DENY]
    assert batch_pb2.Verdicts.FromString(merged).final


# --- replays


def test_byte_for_byte_replay_is_refused_every_time() -> None:
    shield = admission()
    assert judge(shield, GOOD).accepted == 1
    for later in (0, 1, 59 * NS, 60 * NS):
        replay = judge(shield, GOOD, now=NOW + later)
        assert (list(replay.ledger.codes), replay.runs, live(shield)) == ([Verdict.REPLAYED], b"", 1)


def test_replay_within_the_same_batch_is_refused() -> None:
    judgement = judge(admission(), GOOD, GOOD, signed(1), GOOD)
    assert list(judgement.ledger.codes) == [0, Verdict.REPLAYED, 0, Verdict.REPLAYED]
    assert list(runs_of(judgement)[0].command) == [GOOD, signed(1)]


def test_same_signature_with_fields_in_another_order_is_a_replay() -> None:
    shield = admission()
    judge(shield, GOOD)
    parsed = twin.parse_command(GOOD)
    numbers = {name: number for number, name in twin.COMMAND_FIELDS.items()}
    turned = b"".join(twin.put(numbers[name], parsed[name]) for name in reversed(parsed))
    traced = twin.encode({**parsed, "traceparent": TRACE})
    assert turned != GOOD
    assert list(judge(shield, turned, traced).ledger.codes) == [Verdict.REPLAYED] * 2


def test_retry_that_signs_again_is_let_in() -> None:
    shield = admission()
    first = judge(shield, signed(1))
    again = judge(shield, signed(1, timestamp=twin.format_timestamp(NOW + 1).encode()))
    assert (first.accepted, again.accepted) == (1, 1)


@pytest.mark.parametrize("ahead_s", [0, 50])
def test_replay_after_a_restart_is_refused_by_its_audience(ahead_s: int) -> None:
    command = signed(timestamp=twin.format_timestamp(NOW + ahead_s * NS).encode())
    assert judge(admission(), command).accepted == 1
    restarted = native.Admission(audience="shield-0:02")
    restarted.set_keyset(SOURCE, [("hmac-v1", SECRET, 0, 0, False)])
    replay = judge(restarted, command, now=NOW + NS)
    assert list(replay.ledger.codes) == [Verdict.WRONG_AUDIENCE]
    assert live(restarted) == 0


def test_replay_of_a_command_stamped_ahead_is_refused_as_long_as_its_window() -> None:
    shield = admission()
    command = signed(timestamp=twin.format_timestamp(NOW + 50 * NS).encode())
    assert judge(shield, command).accepted == 1
    last = NOW + 110 * NS
    assert list(judge(shield, command, now=last).ledger.codes) == [Verdict.REPLAYED]
    assert list(judge(shield, command, now=last + 1).ledger.codes) == [Verdict.TIMESTAMP_OUTSIDE_WINDOW]


def test_clock_that_steps_back_lets_nothing_in_again() -> None:
    shield = admission()
    judge(shield, GOOD)
    judge(shield, now=NOW + 200 * NS)
    assert list(judge(shield, GOOD, now=NOW).ledger.codes) == [Verdict.TIMESTAMP_OUTSIDE_WINDOW]


def test_new_keys_and_a_lifted_suspension_do_not_reopen_the_window() -> None:
    shield = admission()
    judge(shield, GOOD)
    shield.remove_keyset(SOURCE)
    shield.set_suspended(SOURCE, True)
    shield.set_keyset(SOURCE, [("hmac-v1", SECRET, 0, 0, False)])
    shield.set_suspended(SOURCE, False)
    assert list(judge(shield, GOOD).ledger.codes) == [Verdict.REPLAYED]


def test_full_nonce_table_refuses_with_a_hint_and_evicts_nothing() -> None:
    shield = admission(nonce_capacity=2)
    commands = [signed(number) for number in range(4)]
    judgement = judge(shield, *commands)
    assert list(judgement.ledger.codes) == [0, 0, Verdict.SATURATED, Verdict.SATURATED]
    (refusal,) = verdicts_of(judgement).refusal
    assert (refusal.index, refusal.reason) == (2, Verdict.SATURATED)
    assert 60_000 <= refusal.retry_after_ms <= 62_000
    assert list(judge(shield, *commands).ledger.codes) == [39, 39, 70, 70]


def test_one_source_cannot_fill_the_table_for_others() -> None:
    shield = admission(nonce_share_per_tenant=1)
    assert list(judge(shield, signed(0), signed(1)).ledger.codes) == [0, Verdict.SATURATED]
    assert judge(shield, signed(0, secret=OTHER_SECRET), source=OTHER).accepted == 1


# --- the order of the questions


def test_window_is_inclusive_on_both_sides() -> None:
    early = signed(0, timestamp=twin.format_timestamp(NOW - 60 * NS).encode())
    late = signed(1, timestamp=twin.format_timestamp(NOW + 60 * NS).encode())
    assert judge(admission(), early, late).accepted == 2


def test_stale_command_is_refused_for_its_time_whether_or_not_its_hmac_is_right() -> None:
    stamp = twin.format_timestamp(NOW - 90 * NS).encode()
    judgement = judge(
        admission(), signed(0, timestamp=stamp), signed(0, timestamp=stamp, secret=OTHER_SECRET)
    )
    assert list(judgement.ledger.codes) == [Verdict.TIMESTAMP_OUTSIDE_WINDOW] * 2
    (refusal,) = verdicts_of(judgement).refusal
    assert (refusal.index, refusal.detail) == (0, "90000 ms behind")


def test_wrong_audience_is_told_the_right_one_once_per_batch() -> None:
    judgement = judge(admission(), GOOD, signed(0, audience=b"x"), signed(1, audience=b"y"))
    (refusal,) = verdicts_of(judgement).refusal
    assert (refusal.index, refusal.reason, refusal.detail) == (1, Verdict.WRONG_AUDIENCE, AUDIENCE)


def test_suspended_source_is_refused_before_its_keys_are_looked_at() -> None:
    shield = admission()
    shield.set_suspended(SOURCE, True)
    assert list(judge(shield, GOOD, b"bad", signed(key_version=b"v9")).ledger.codes) == [32, 16, 32]
    assert judge(shield, signed(secret=OTHER_SECRET), source=OTHER).accepted == 1
    shield.set_suspended(SOURCE, False)
    assert judge(shield, GOOD).accepted == 1


def test_a_suspended_tenant_is_suspended_with_the_sources_that_it_gets_later() -> None:
    shield = admission()
    tenant = SOURCE.partition("/")[0]
    shield.remove_keyset(SOURCE)
    shield.set_suspended(f"{tenant}/*", True)
    shield.set_keyset(SOURCE, [("hmac-v1", SECRET, 0, 0, False)])
    assert list(judge(shield, GOOD, b"bad").ledger.codes) == [32, 16]
    # A tenant whose name begins with it is another.
    shield.set_keyset(f"{tenant}-2/a", [("hmac-v1", OTHER_SECRET, 0, 0, False)])
    assert judge(shield, signed(secret=OTHER_SECRET), source=f"{tenant}-2/a").accepted == 1
    shield.set_suspended(SOURCE, True)
    shield.set_suspended(f"{tenant}/*", False)
    assert list(judge(shield, GOOD).ledger.codes) == [32]
    shield.set_suspended(SOURCE, False)
    assert judge(shield, GOOD).accepted == 1


def test_key_is_judged_at_the_signed_time_and_revocation_now() -> None:
    shield = admission()
    late = signed(1, timestamp=twin.format_timestamp(NOW + 30 * NS).encode())
    shield.set_keyset(SOURCE, [("hmac-v1", SECRET, NOW, NOW + 30 * NS, False)])
    assert list(judge(shield, GOOD, late, now=NOW + 40 * NS).ledger.codes) == [0, Verdict.KEY_EXPIRED]
    early = signed(2, timestamp=twin.format_timestamp(NOW - 1).encode())
    assert list(judge(shield, early).ledger.codes) == [Verdict.KEY_EXPIRED]
    shield.set_keyset(SOURCE, [("hmac-v1", SECRET, NOW, NOW + 30 * NS, True)])
    assert list(judge(shield, signed(3), late).ledger.codes) == [Verdict.KEY_REVOKED] * 2


def test_source_without_keys_is_told_that_its_version_is_unknown() -> None:
    shield = admission()
    shield.remove_keyset(SOURCE)
    assert list(judge(shield, GOOD).ledger.codes) == [Verdict.UNKNOWN_KEY_VERSION]
    assert list(judge(shield, GOOD, source="nobody/else").ledger.codes) == [Verdict.UNKNOWN_KEY_VERSION]


def test_moving_a_byte_between_fields_breaks_the_signature() -> None:
    tag = twin.tag_of(SECRET, fields(target=b"ab", name=b"c"))
    moved = twin.encode({**fields(target=b"a", name=b"bc"), "hmac": tag})
    assert list(judge(admission(), moved).ledger.codes) == [Verdict.HMAC_MISMATCH]


@pytest.mark.parametrize("name", ["id", "timestamp", "target", "name", "content_type", "payload"])
def test_every_signed_field_is_covered(name: str) -> None:
    changed = {
        "id": b"0190a5b2-7c00-7000-8000-ffffffffffff",
        "timestamp": twin.format_timestamp(NOW + 1).encode(),
        "target": b"mailer",
        "name": b"create-user",
        "content_type": b"",
        "payload": b'{"user":8}',
    }
    forged = twin.encode({**fields(), name: changed[name], "hmac": twin.tag_of(SECRET, fields())})
    assert list(judge(admission(), forged).ledger.codes) == [Verdict.HMAC_MISMATCH]


# --- the frame

HEADER = twin.put(2, b"\x08\x05")
BAD_FRAMES: dict[str, tuple[bytes, Verdict]] = {
    "random bytes": (random_bytes(3), Verdict.MALFORMED),
    "a hello": (twin.put(1, b"") + twin.put(3, GOOD), Verdict.MALFORMED),
    "an unknown field": (twin.put(3, GOOD) + twin.put(4, b""), Verdict.MALFORMED),
    "two headers": (HEADER + HEADER + twin.put(3, GOOD), Verdict.MALFORMED),
    "a header with an unknown field": (twin.put(2, b"\x18\x01") + twin.put(3, GOOD), Verdict.MALFORMED),
    "a header with a number twice": (twin.put(2, b"\x08\x01\x08\x01"), Verdict.MALFORMED),
    "a command that is a number": (HEADER + b"\x18\x01", Verdict.MALFORMED),
    "a truncated batch": (twin.submission([GOOD, GOOD])[:-1], Verdict.MALFORMED),
    "too many commands": (twin.submission([b""] * 1001, batch_seq=5), Verdict.OVERSIZED),
    "too many bytes": (twin.submission([bytes(1 << 20)], batch_seq=5), Verdict.OVERSIZED),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_bad_frame_is_refused_whole_and_touches_no_nonce(case: str) -> None:
    frame, code = BAD_FRAMES[case]
    shield = admission()
    judgement = shield.judge(frame, source=SOURCE, cert_serial="0a1b", now_unix_ns=NOW)
    assert judgement.frame_code == code
    assert (judgement.accepted, judgement.runs, judgement.ledger.count, live(shield)) == (0, b"", 0, 0)
    assert shield.counters()["frames_refused"] == 1
    if code == Verdict.OVERSIZED:
        assert judgement.ledger.batch_seq == 5


def test_largest_batch_and_payload_are_taken() -> None:
    shield = admission()
    assert judge(shield, *[signed(number) for number in range(1000)]).accepted == 1000
    assert judge(shield, signed(payload=bytes(256 << 10))).accepted == 1


def test_command_alone_over_the_limit_is_refused_whole() -> None:
    shield = admission(max_batch_bytes=100)
    judgement = shield.judge_one(GOOD, source=SOURCE, cert_serial="0a1b", now_unix_ns=NOW, budget_ms=1)
    assert (judgement.frame_code, judgement.accepted) == (Verdict.OVERSIZED, 0)


def test_empty_batch_is_nothing_bad() -> None:
    judgement = judge(admission())
    assert (judgement.frame_code, judgement.accepted, judgement.ledger.done) == (0, 0, True)
    bare = admission().judge(b"", source=SOURCE, cert_serial="0a1b", now_unix_ns=NOW)
    assert (bare.frame_code, bare.budget_ms) == (0, 0)


# --- telemetry and counters


def test_telemetry_has_a_row_per_refused_command_and_none_for_accepted_ones() -> None:
    shield = admission()
    judge(shield, GOOD)
    judgement = judge(shield, signed(0), b"\xff", signed(1, audience=b"x"), GOOD, signed(2, name=b"a b"))
    written = judgement.telemetry(NOW + 5)
    block = telemetry_pb2.TelemetryBlock.FromString(written)
    assert (block.service, block.settled_unix_ns) == ("shield", NOW + 5)
    told = [row for row in rows(written) if row.kind != SAMPLE]
    assert [row.verdict for row in told] == [16, 36, 26, 39]
    assert {row.source for row in told} == {SOURCE}
    assert [row.target for row in told] == ["", "discord-bot", "discord-bot", "discord-bot"]
    assert [row.name for row in told] == ["", "delete-user", "", "delete-user"]
    assert [row.sent_unix_ns for row in told] == [0, NOW, NOW, NOW]
    assert {row.admitted_unix_ns for row in told} == {0}
    assert [row.command_id[-3:] for row in told] == ["000", "002", "003", "1f5"]


def test_a_command_near_the_edge_of_the_window_warns_its_sender() -> None:
    shield = admission()
    near, far = NOW + 48 * NS, NOW + 48 * NS - 1
    judgement = judge(
        shield,
        signed(0, timestamp=native.format_timestamp(near).encode()),
        signed(1, timestamp=native.format_timestamp(far).encode()),
    )
    assert judgement.accepted == 2
    told = [row for row in rows(judgement.telemetry(NOW)) if row.kind != SAMPLE]
    assert [(row.kind, row.verdict, row.sent_unix_ns, row.admitted_unix_ns) for row in told] == [
        (telemetry_pb2.EVENT_KIND_SKEW_NEAR_LIMIT, 0, near, NOW)
    ]
    assert (told[0].source, told[0].command_id[-1]) == (SOURCE, "1")


def test_a_replayed_command_tells_nothing_about_clocks() -> None:
    shield = admission()
    late = signed(0, timestamp=native.format_timestamp(NOW - 60 * NS).encode())
    judge(shield, late)
    told = rows(judge(shield, late).telemetry(NOW))
    assert [(row.kind, row.verdict) for row in told] == [(0, Verdict.REPLAYED)]


def test_one_command_in_a_hundred_is_a_skew_sample() -> None:
    shield = admission()
    sampled = 0
    for number in range(20):
        judgement = judge(shield, *(signed(number * 500 + at) for at in range(500)))
        told = rows(judgement.telemetry(NOW)) if judgement.rows else []
        assert {row.kind for row in told} <= {SAMPLE}
        sampled += len(told)
    # 100 expected; eight standard deviations on each side.
    assert 20 < sampled < 180


def test_counters_name_every_verdict_that_shield_gives() -> None:
    shield = admission()
    judge(shield, GOOD, GOOD, b"bad")
    counters = shield.counters()
    assert (counters["accepted"], counters["replayed"], counters["malformed"]) == (1, 1, 1)
    wanted = {verdict.reason for verdict in Verdict if verdict.invalid} | {"saturated", "nonces_live"}
    assert wanted <= counters.keys()


# --- signing and keys

GOOD_ARGUMENTS = {
    "key_version": "hmac-v1",
    "audience": AUDIENCE,
    "command_id": "0190a5b2-7c00-7000-8000-000000000001",
    "timestamp_unix_ns": NOW,
    "target": "discord-bot",
    "name": "delete-user",
    "payload": b"{}",
    "content_type": "application/json",
    "traceparent": TRACE.decode(),
}


def test_signed_command_is_let_in() -> None:
    command = native.sign_command(SECRET, **GOOD_ARGUMENTS)  # type: ignore[arg-type]
    assert judge(admission(), command).accepted == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key_version", "V1"),
        ("audience", ""),
        ("command_id", "00000000-0000-0000-0000-000000000000"),
        ("target", "a b"),
        ("name", "löschen"),
        ("name", "a\nb"),
        ("payload", bytes((256 << 10) + 1)),
        ("content_type", "a\x00"),
        ("traceparent", "00-1-2-3"),
    ],
)
def test_signing_names_the_field_that_shield_would_refuse(field: str, value: str | bytes) -> None:
    with pytest.raises(ValueError, match=f"^{field}:"):
        native.sign_command(SECRET, **{**GOOD_ARGUMENTS, field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", [b"", b"short"])
def test_short_secret_is_refused_for_signing_and_for_keys(secret: bytes) -> None:
    with pytest.raises(ValueError, match=r"^secret:"):
        native.sign_command(secret, **GOOD_ARGUMENTS)  # type: ignore[arg-type]
    shield = admission()
    with pytest.raises(ValueError, match=r"^secret:"):
        shield.set_keyset(SOURCE, [("hmac-v1", secret, 0, 0, False)])
    assert judge(shield, GOOD).accepted == 1, "the keys that were there stay"


def test_key_version_given_twice_is_refused() -> None:
    row = ("hmac-v1", SECRET, 0, 0, False)
    with pytest.raises(ValueError, match="twice"):
        admission().set_keyset(SOURCE, [row, row])


def test_audience_that_no_command_could_name_is_refused() -> None:
    with pytest.raises(ValueError, match="audience"):
        native.Admission(audience="a b")


def test_nothing_shows_a_secret() -> None:
    shield = admission()
    shown = [repr(shield), str(shield), repr(shield.counters()), repr(judge(shield, GOOD))]
    assert not any(secret in text for text in shown for secret in (SECRET.hex(), repr(SECRET), "\\x1f"))


def test_timestamps_have_nine_digits_and_far_years_are_clamped() -> None:
    assert native.format_timestamp(NOW + 5) == "2026-09-21T14:13:20.000000005Z"
    assert native.parse_timestamp("9999-12-31T23:59:59Z") == 2**63 - 1
    assert native.parse_timestamp("0001-01-01T00:00:00Z") == -(2**63)
    for unix_ns in (0, -1, NOW, 2**63 - 1, -(2**63)):
        assert native.parse_timestamp(native.format_timestamp(unix_ns)) == unix_ns


@pytest.mark.parametrize("length", [0, 1, 31, 32, 63, 64, 65, 131])
def test_hmac_equals_the_standard_library(length: int) -> None:
    secret = bytes(range(length))
    for size in (0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 1000):
        message = bytes(size)
        assert native.hmac_sha256(secret, message) == hmac.digest(secret, message, "sha256")
