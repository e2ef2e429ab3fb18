"""The native admission and its plain twin never disagree, for any bytes and any movement of the clock."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snavio import native
from tests.support import twin

NOW = 1_790_000_000_000_000_000
AUDIENCE = "shield-0:01"
SOURCES = ("acme/billing", "globex/mailer")
KEYS = {
    "acme/billing": [
        twin.TwinKey("hmac-v1", b"1" * 32, not_after_unix_ns=NOW + 10 * twin.NS),
        twin.TwinKey("hmac-v2", b"2" * 32, not_before_unix_ns=NOW - 30 * twin.NS),
        twin.TwinKey("hmac-v3", b"3" * 32, revoked=True),
    ],
    "globex/mailer": [twin.TwinKey("hmac-v2", b"4" * 64), twin.TwinKey("hmac-v9", b"5" * 65)],
}
LIMITS: dict[str, int] = {
    "window_ms": 60_000,
    "nonce_capacity": 14,
    "nonce_share_per_tenant": 9,
    "max_batch_bytes": 6000,
    "max_batch_commands": 12,
    "max_payload_bytes": 300,
}
EXAMPLES = 60


def admissions() -> tuple[native.Admission, twin.TwinAdmission]:
    real = native.Admission(audience=AUDIENCE, **LIMITS)
    plain = twin.TwinAdmission(AUDIENCE, **LIMITS)  # type: ignore[arg-type]
    for source, keys in KEYS.items():
        plain.keysets[source] = keys
        rows = [
            (key.version, key.secret, key.not_before_unix_ns, key.not_after_unix_ns, key.revoked)
            for key in keys
        ]
        real.set_keyset(source, rows)
    return real, plain


secrets = st.sampled_from([key.secret for keys in KEYS.values() for key in keys])
offsets_ns = st.one_of(
    st.sampled_from([0, 60 * twin.NS, -60 * twin.NS, 60 * twin.NS + 1, -60 * twin.NS - 1, 50 * twin.NS]),
    st.integers(-10 * twin.NS, 10 * twin.NS),
    st.integers(-70 * twin.NS, 70 * twin.NS),
)
good_timestamps = offsets_ns.map(lambda offset: twin.format_timestamp(NOW + offset).encode())
odd_timestamps = st.one_of(
    st.sampled_from(
        [
            b"",
            b"9999-12-31T23:59:59Z",
            b"0001-01-01T00:00:00Z",
            b"0000-01-01T00:00:00Z",
            b"2026-09-21T14:13:20",
            b"2026-09-21T14:13:60Z",
            b"2026-02-29T00:00:00Z",
            b"2026-09-21T14:13:20.123456789012Z",
            b"2026-09-21T14:13:20.5Z",
            b"2026-09-21T14:13:20Z",
            b"2026-09-21t14:13:20Z",
            b"2026-09-21T24:00:00Z",
        ]
    ),
    st.from_regex(
        rb"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,10})?Z", fullmatch=True
    ),
)
odd_text = st.one_of(
    st.just(b""),
    st.sampled_from(
        [b"a\nb", b"\x00", b"\xff\xfe", "é".encode(), b"a" * 65, b"a" * 128, b"a" * 129, b"-a", b"A", b"a:b"]
    ),
    st.binary(max_size=12),
    st.text(alphabet="aZ09._:-/ ~", max_size=12).map(str.encode),
)
odd_ids = st.sampled_from(
    [
        b"00000000-0000-0000-0000-000000000000",
        b"0190A5B2-7C00-7000-8000-00000000000A",
        b"0190a5b2",
        b"0190a5b2-7c00-7000-8000-00000000000g",
        b"0190a5b27c00-7000-8000-0000-00000000",
    ]
)
odd_traces = st.sampled_from(
    [
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + b"a" * 32 + b"-" + b"0" * 16 + b"-01",
        b"01-" + b"a" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + b"A" * 32 + b"-00f067aa0ba902b7-01",
    ]
)
good_fields = st.fixed_dictionaries(
    {
        "id": st.uuids(allow_nil=False).map(lambda value: str(value).encode()),
        "timestamp": good_timestamps,
        "type": st.just(b"snavio.command-sent"),
        "key_version": st.sampled_from([b"hmac-v1", b"hmac-v2", b"hmac-v2", b"hmac-v3", b"hmac-v9"]),
        "audience": st.just(AUDIENCE.encode()),
        "target": st.sampled_from([b"discord-bot", b"a", b"0._-"]),
        "name": st.sampled_from([b"delete-user", b"Z:9._-"]),
        "content_type": st.sampled_from([b"", b"application/json", b" ~"]),
        "payload": st.binary(max_size=40),
        "traceparent": st.sampled_from([b"", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
    }
)
odd_values = {
    "id": st.one_of(odd_ids, odd_text),
    "timestamp": odd_timestamps,
    "type": odd_text,
    "key_version": odd_text,
    "audience": odd_text,
    "target": odd_text,
    "name": odd_text,
    "content_type": odd_text,
    "payload": st.binary(min_size=299, max_size=301),
    "traceparent": st.one_of(odd_traces, odd_text),
    "source": odd_text,
}


@st.composite
def commands(draw: st.DrawFn, source: str) -> bytes:
    """Valid commands, commands with one bad field, and mutated bytes."""
    fields = dict(draw(good_fields))
    secret = draw(secrets)
    kind = draw(st.integers(0, 16))
    if kind > 5:
        kind = max(kind - 7, 0)
    if kind <= 3 and (known := [key for key in KEYS[source] if not key.revoked]):
        key = draw(st.sampled_from(known))
        return twin.sign(key.secret, {**fields, "key_version": key.version.encode()})
    if kind == 4:
        return twin.sign(secret, fields)
    if kind == 5:
        for name in draw(st.lists(st.sampled_from(sorted(odd_values)), min_size=1, max_size=2)):
            fields[name] = draw(odd_values[name])
        return twin.sign(secret, fields)
    if kind == 6:
        return twin.encode({**fields, "hmac": draw(st.binary(min_size=15, max_size=34))})
    command = twin.sign(secret, fields)
    if kind == 7:
        at = draw(st.integers(0, len(command) - 1))
        return command[:at] + bytes([command[at] ^ draw(st.integers(1, 255))]) + command[at + 1 :]
    if kind == 8:
        return command[: draw(st.integers(0, len(command)))]
    number = draw(st.integers(1, 14))
    extra = draw(st.sampled_from([twin.put(number, b"x"), twin.put(number, b""), twin.put_number(number, 7)]))
    return draw(st.sampled_from([command + extra, extra + command]))


@st.composite
def frames(draw: st.DrawFn, source: str) -> bytes:
    """Mostly batches; sometimes frames that no producer would send."""
    batch = list(draw(st.lists(commands(source), max_size=13)))
    for _ in range(draw(st.integers(0, 2)) if batch else 0):
        batch.append(draw(st.sampled_from(batch)))
    frame = twin.submission(
        batch, batch_seq=draw(st.integers(0, 2**64 - 1)), budget_ms=draw(st.integers(0, 2**32 - 1))
    )
    kind = draw(st.integers(0, 30))
    if kind == 0:
        return draw(st.binary(max_size=60))
    if kind == 1:
        return frame[: draw(st.integers(0, len(frame)))]
    if kind == 2:
        return frame + draw(
            st.sampled_from([twin.put(1, b""), twin.put(2, b""), twin.put(4, b"x"), b"\x18\x01"])
        )
    if kind == 3:
        return twin.put(2, draw(st.binary(max_size=14))) + frame[2 + frame[1] :]
    return frame


# Frame, source, nanoseconds that the clock moves before it, and whether the source's suspension flips.
Step = tuple[bytes, str, int, bool]


@st.composite
def step(draw: st.DrawFn) -> Step:
    """A frame, its sender, the movement of the clock before it, and a flag that flips the source's suspension."""
    source = draw(st.sampled_from(SOURCES))
    moves = [0, 0, 0, 1, twin.NS, 2 * twin.NS, 20 * twin.NS, 61 * twin.NS, -twin.NS, -100 * twin.NS]
    flips = draw(st.integers(0, 12)) == 7
    return draw(frames(source)), source, draw(st.sampled_from(moves)), flips


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(step(), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=4))
def test_native_and_twin_agree_over_batches_and_a_moving_clock(steps: list[Step], again: list[int]) -> None:
    # A captured batch comes back later, whole: everything in it that was admitted must be refused.
    agree_on(steps + [steps[position % len(steps)] for position in again])


@pytest.mark.parametrize("seed", range(25))
def test_native_and_twin_agree_over_crowded_traffic_that_fills_the_table(seed: int) -> None:
    agree_on(crowded_traffic(random.Random(seed)))


def crowded_traffic(chance: random.Random) -> list[Step]:
    """Mostly valid commands, resent, changed by a byte, and stamped around a clock that mostly advances."""
    sent: dict[str, list[bytes]] = {source: [] for source in SOURCES}
    script: list[Step] = []
    now = NOW
    for _ in range(20):
        source = chance.choice(SOURCES)
        moved_ns = chance.choice([0, 1, twin.NS, 7 * twin.NS, 40 * twin.NS, -3 * twin.NS])
        now += moved_ns
        batch = []
        for _ in range(chance.randrange(12)):
            key = chance.choice(KEYS[source])
            stamp = now + chance.choice([0, chance.randrange(-65 * twin.NS, 65 * twin.NS), 60 * twin.NS])
            command = twin.sign(
                key.secret,
                {
                    "id": str(uuid.UUID(int=chance.getrandbits(128) | 1)).encode(),
                    "timestamp": twin.format_timestamp(stamp).encode(),
                    "type": twin.TYPE.encode(),
                    "key_version": key.version.encode(),
                    "audience": AUDIENCE.encode(),
                    "target": b"discord-bot",
                    "name": b"delete-user",
                    "payload": chance.randbytes(chance.choice([0, 5, 140])),
                },
            )
            sent[source].append(command)
            kind = chance.randrange(10)
            if kind == 0:
                at = chance.randrange(len(command))
                command = command[:at] + chance.randbytes(1) + command[at + 1 :]
            elif kind <= 2:
                command = chance.choice(sent[chance.choice(SOURCES)] or [command])
            batch.append(command)
        script.append((twin.submission(batch), source, moved_ns, chance.randrange(20) == 0))
    return script


def agree_on(script: list[Step]) -> None:
    """Run the script on both and compare everything that can be observed."""
    real, plain = admissions()
    now = NOW
    for frame, source, step_ns, flips in script:
        now += step_ns
        if flips:
            # Now and then the whole tenant: by the time, which both have.
            who = source if now % 4 else source.partition("/")[0] + "/*"
            plain.suspended ^= {who}
            real.set_suspended(who, who in plain.suspended)
        got = real.judge(frame, source=source, cert_serial="0a1b", now_unix_ns=now)
        want = plain.judge(frame, source=source, cert_serial="0a1b", now_unix_ns=now)
        assert got.frame_code == want.frame_code
        assert got.ledger.codes == want.codes
        assert got.runs == want.runs
        assert got.accepted == want.codes.count(0)
        if not want.frame_code:
            assert (got.ledger.batch_seq, got.budget_ms) == (want.batch_seq, want.budget_ms)
        assert real.counters()["nonces_live"] == len(plain.nonces)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(SOURCES).flatmap(lambda source: st.tuples(commands(source), st.just(source))))
def test_one_command_alone_is_judged_as_in_a_batch(sent: tuple[bytes, str]) -> None:
    command, source = sent
    real, plain = admissions()
    got = real.judge_one(command, source=source, cert_serial="0a1b", now_unix_ns=NOW, budget_ms=77)
    assert list(got.ledger.codes) == [plain.decide(command, source=source, now_unix_ns=NOW)]
    assert (got.budget_ms, got.ledger.batch_seq, got.frame_code) == (77, 0, 0)


@settings(max_examples=EXAMPLES, deadline=None)
@given(good_fields, secrets)
def test_native_and_twin_sign_alike(fields: dict[str, bytes], secret: bytes) -> None:
    sent = twin.parse_timestamp(fields["timestamp"].decode())
    assert sent is not None
    signed = native.sign_command(
        secret,
        key_version=fields["key_version"].decode(),
        audience=fields["audience"].decode(),
        command_id=fields["id"].decode(),
        timestamp_unix_ns=sent,
        target=fields["target"].decode(),
        name=fields["name"].decode(),
        payload=fields["payload"],
        content_type=fields["content_type"].decode(),
        traceparent=fields["traceparent"].decode(),
    )
    assert signed == twin.sign(secret, fields)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.one_of(odd_timestamps, good_timestamps, odd_text))
def test_timestamps_are_read_alike(text: bytes) -> None:
    try:
        spelled = text.decode()
    except UnicodeDecodeError:
        return
    want = twin.parse_timestamp(spelled)
    try:
        got: int | None = native.parse_timestamp(spelled)
    except ValueError:
        got = None
    assert got == want


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(SOURCES),
            st.integers(0, 12),
            st.integers(-2 * twin.NS, 3 * twin.NS),
        ),
        max_size=60,
    )
)
def test_nonce_sets_agree_over_a_moving_clock(claims: list[tuple[str, int, int]]) -> None:
    real = native.NonceSet(capacity=8, share_per_tenant=5)
    plain = twin.TwinNonces(8, 5)
    now = NOW
    for source, number, step_ns in claims:
        now += step_ns
        tag = bytes([number]) * 8 + b"the rest is not looked at"
        # The same tag always ends at the same time: its timestamp is signed.
        until = NOW + number * twin.NS
        assert real.claim(source, tag, until, now) == plain.claim(source, tag, until, now)
        assert len(real) == len(plain)
