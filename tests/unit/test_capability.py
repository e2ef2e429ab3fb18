"""Capabilities by themselves: the vectors, the limits of narrowing, and everything malformed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from snavio.domain.capability import (
    MAX_CAVEATS,
    MAX_TEXT,
    Capability,
    Identifier,
    decode,
    derive_root,
    mint,
    read_text,
    verify,
)
from snavio.domain.capability_root import RootLine, revoke_through, rotate_line
from snavio.domain.caveat import Caveat, Denial, Operation, Quota, UnknownCaveat, covers, parse
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, Conflict
from snavio.native import hmac_sha256
from tests.vectors import capabilities as twin

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors/capabilities.json").read_text())
WORKED: list[dict[str, Any]] = VECTORS["capabilities"]
KEY = derive_root(b"s" * 32, realm="acme/billing", version=1)
BOT = Identity("snavio.local", IdentityKind.SERVICE, "bot", "acme")
EXPIRES = Caveat(expires_ms=1_790_000_000_000)
READ = Caveat(operations=frozenset({Operation.RECV, Operation.ACK}))


def capability(*caveats: Caveat, realm: str = "acme/billing") -> Capability:
    return mint(KEY, Identifier("00112233445566ff", 1, "ab" * 16, 1_780_000_000_000, realm), *caveats)


def of(identity: Identity) -> Caveat:
    return Caveat(holder=identity.spiffe_id)


def test_the_vectors_are_what_their_generator_writes() -> None:
    assert twin.document() == VECTORS


@pytest.mark.parametrize("vector", WORKED, ids=lambda vector: vector["name"])
def test_C_6_the_chain_is_that_of_the_vectors(vector: dict[str, Any]) -> None:
    key = derive_root(bytes.fromhex(VECTORS["secret"]), realm=vector["realm"], version=vector["version"])
    assert key.hex() == vector["root_key"]
    identifier = Identifier(
        VECTORS["root"], vector["version"], VECTORS["cap_id"], VECTORS["issued_ms"], vector["realm"]
    )
    made = mint(key, identifier, *map(parse, vector["caveats"]))
    assert made.text() == vector["text"]
    assert read_text(vector["text"]) == made
    assert verify(key, made) == tuple(map(bytes.fromhex, vector["steps"][1:]))


@pytest.mark.parametrize("vector", WORKED, ids=lambda vector: vector["name"])
def test_C_6_the_native_mac_makes_the_same_chain(vector: dict[str, Any]) -> None:
    step = hmac_sha256(
        bytes.fromhex(vector["root_key"]), read_text(vector["text"]).identifier.text().encode()
    )
    for caveat, expected in zip(vector["caveats"], vector["steps"][1:], strict=True):
        step = hmac_sha256(step, caveat.encode())
        assert step.hex() == expected


def test_I_8_every_flipped_bit_is_refused() -> None:
    genuine = capability(of(BOT), READ, EXPIRES, Caveat(quota=Quota(10, 1000)))
    encoded = genuine.encode()
    taken = []
    for place in range(len(encoded) * 8):
        flipped = bytearray(encoded)
        flipped[place // 8] ^= 1 << place % 8
        try:
            found = decode(bytes(flipped))
        except BadRequest:
            continue
        if verify(KEY, found) is not None:
            taken.append(place)
    assert taken == []
    assert verify(KEY, decode(encoded)) is not None


def test_I_8_every_changed_character_of_the_text_is_refused() -> None:
    text = capability(of(BOT), EXPIRES).text()
    for place in range(len(text)):
        for other in {"A", "_", "=", "\n", "é", "/"} - {text[place]}:
            try:
                found = read_text(text[:place] + other + text[place + 1 :])
            except BadRequest:
                continue
            assert verify(KEY, found) is None, place


def test_I_8_whatever_is_cut_off_or_added_is_refused() -> None:
    encoded = capability(of(BOT), READ, EXPIRES).encode()
    for length in range(len(encoded)):
        with pytest.raises(BadRequest):
            decode(encoded[:length])
    with pytest.raises(BadRequest):
        decode(encoded + b"\0")


def test_I_8_noise_is_refused_with_a_stable_reason_and_in_time() -> None:
    noise = random.Random(7)
    encoded = capability(of(BOT), READ, EXPIRES).encode()
    for _ in range(3000):
        spoilt = bytearray(encoded)
        for _ in range(noise.randrange(1, 6)):
            start = noise.randrange(len(spoilt))
            spoilt[start : start + noise.randrange(4)] = noise.randbytes(noise.randrange(4))
        if bytes(spoilt) == encoded:
            continue
        try:
            found = decode(bytes(spoilt))
        except BadRequest as refused:
            assert refused.reason in {Denial.MALFORMED.reason, Denial.UNKNOWN_CAVEAT.reason}
        else:
            assert verify(KEY, found) is None


def test_I_8_another_key_another_realm_another_version_do_not_verify() -> None:
    genuine = capability(of(BOT), EXPIRES)
    assert verify(KEY, genuine) is not None
    for secret, realm, version in (
        (b"t" * 32, "acme/billing", 1),
        (b"s" * 32, "acme/billin", 1),
        (b"s" * 32, "acme/*", 1),
        (b"s" * 32, "acme/billing", 2),
    ):
        assert verify(derive_root(secret, realm=realm, version=version), genuine) is None


def test_I_8_a_caveat_cannot_be_taken_away_changed_or_moved() -> None:
    genuine = capability(of(BOT), READ, EXPIRES)
    for caveats in (
        genuine.caveats[:-1],
        genuine.caveats[1:],
        genuine.caveats[::-1],
        (of(BOT), READ, Caveat(expires_ms=EXPIRES.expires_ms + 1)),
        (*genuine.caveats, READ),
    ):
        assert verify(KEY, Capability(genuine.identifier, caveats, genuine.signature)) is None


def test_C_6_narrowing_needs_no_key_and_never_widens() -> None:
    random_choice = random.Random(11)
    topics = ["acme/billing", "acme/orders", "acme/orders-eu", "acme/o", "beta/billing"]
    patterns = ["*", "acme/*", "acme/orders*", *topics]
    for _ in range(300):
        held = mint(
            derive_root(b"s" * 32, realm="acme/*", version=1),
            Identifier("00112233445566ff", 1, "ab" * 16, 1, "acme/*"),
            of(BOT),
            EXPIRES,
        )
        for _ in range(random_choice.randrange(1, 6)):
            added = random_choice.choice(
                [
                    Caveat(topics=tuple(random_choice.sample(patterns, 2))),
                    Caveat(operations=frozenset(random_choice.sample(list(Operation), 4))),
                    Caveat(expires_ms=random_choice.randrange(1, EXPIRES.expires_ms * 2)),
                    Caveat(holder=random_choice.choice([BOT.spiffe_id, "tenant:acme", "tenant:beta"])),
                ]
            )
            before, held = held.bounds(), held.attenuate(added)
            after = held.bounds()
            assert after.expires_ms <= before.expires_ms
            assert before.held_by(BOT) or not after.held_by(BOT)
            for topic in topics:
                for operation in Operation:
                    assert (
                        before.denial(operation, topic) is None or after.denial(operation, topic) is not None
                    )
        assert verify(derive_root(b"s" * 32, realm="acme/*", version=1), held) is not None
        assert held.bounds().denial(Operation.RECV, "beta/billing") is not None


def test_I_8_the_realm_holds_whatever_the_caveats_say() -> None:
    wide = capability(Caveat(topics=("*",)), of(BOT), EXPIRES).bounds()
    assert wide.denial(Operation.RECV, "acme/billing") is None
    assert wide.denial(Operation.RECV, "acme/orders") is Denial.TOPIC


def test_I_8_without_a_holder_nobody_holds_it() -> None:
    assert not capability(EXPIRES).bounds().held_by(BOT)


def test_I_8_a_holder_is_exactly_one_identity_or_one_tenant() -> None:
    assert capability(of(BOT)).bounds().held_by(BOT)
    others = (
        Identity("snavio.local", IdentityKind.SERVICE, "bot", "beta"),
        Identity("snavio.local", IdentityKind.PRINCIPAL, "bot", "acme"),
        Identity("other.local", IdentityKind.SERVICE, "bot", "acme"),
        Identity("snavio.local", IdentityKind.OPERATOR, "bot"),
    )
    assert not any(capability(of(BOT)).bounds().held_by(other) for other in others)
    tenants = capability(Caveat(holder="tenant:acme")).bounds()
    assert [tenants.held_by(each) for each in (BOT, *others)] == [True, False, True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "topic",
        "topic=",
        "topic=a,",
        "topic=a,,b",
        "topic=*a",
        "topic=a**",
        "topic=a b",
        "topic=A",
        "topic=acme/" + "x" * 260,
        "topic=" + ",".join(["a"] * 17),
        "op=",
        "op=recv,recv",
        "op=ack,recv",
        "op=RECV",
        "op=fly",
        "holder=",
        "holder=acme",
        "holder=tenant:",
        "holder=tenant:Acme",
        "holder=spiffe://a b",
        "expires=",
        "expires=0",
        "expires=-1",
        "expires=+5",
        "expires=05",
        "expires=1_0",
        "expires=٣",
        "expires=9007199254740992",
        "quota=0/1000",
        "quota=1/999",
        "quota=1",
        "quota=1/1000/1",
        "quota=1000000000001/1000",
    ],
)
def test_C_6_a_caveat_of_another_spelling_is_no_caveat(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(text)
    assert refused.value.reason == Denial.MALFORMED.reason


@pytest.mark.parametrize("text", ["", "=", "region=eu", "Topic=a", " topic=a", "time<5"])
def test_C_6_an_unknown_caveat_is_refused_and_never_ignored(text: str) -> None:
    with pytest.raises(UnknownCaveat):
        parse(text)


def test_C_6_size_and_number_of_caveats_are_bounded() -> None:
    held = capability(of(BOT), EXPIRES)
    while len(held.caveats) < MAX_CAVEATS:
        held = held.attenuate(READ)
    assert len(held.text()) <= MAX_TEXT
    with pytest.raises(BadRequest):
        held.attenuate(READ)
    long = Caveat(topics=("acme/" + "x" * 250, "acme/" + "y" * 240))
    with pytest.raises(BadRequest):
        capability(long, long, long, long, long)
    with pytest.raises(BadRequest):
        read_text("snvcap1." + "A" * MAX_TEXT)


def test_C_6_a_pattern_covers_what_begins_with_it() -> None:
    assert covers("*", "") and covers("acme/*", "acme/a") and covers("acme/*", "acme/b*") and covers("a", "a")
    assert not covers("acme/*", "acme") and not covers("acme/a", "acme/ab") and not covers("acme/a", "acme/*")


def test_a_capability_does_not_show_its_signature() -> None:
    held = capability(of(BOT), EXPIRES)
    assert held.signature.hex() not in repr(held) and repr(held.signature) not in repr(held)
    assert held.text() not in repr(held)


def test_I_15_a_rotated_root_line_accepts_the_old_version_until_its_end() -> None:
    line = rotate_line(RootLine("acme/billing"), now_ns=100, overlap_ns=50)
    assert (line.version, line.ends) == (2, ((1, 150),))
    assert [line.accepts(version, 149) for version in (1, 2, 3)] == [True, True, True]
    assert [line.accepts(version, 150) for version in (1, 2, 3)] == [False, True, True]


def test_I_15_revoked_versions_stay_revoked() -> None:
    line = rotate_line(RootLine("acme/billing"), now_ns=100, overlap_ns=50)
    ended = revoke_through(line, 1)
    assert not ended.accepts(1, 101) and ended.accepts(2, 101) and ended.version == 2
    newest = revoke_through(ended, 2)
    assert (newest.version, newest.minimum) == (3, 3)
    assert revoke_through(newest, 1).minimum == 3
    assert not rotate_line(newest, now_ns=102, overlap_ns=50).accepts(2, 103)
    for version in (0, 4):
        with pytest.raises(BadRequest):
            revoke_through(newest, version)


def test_I_15_overlapping_versions_are_bounded() -> None:
    line = RootLine("acme/billing")
    with pytest.raises(Conflict):
        for _ in range(20):
            line = rotate_line(line, now_ns=100, overlap_ns=50)
    assert rotate_line(line, now_ns=150, overlap_ns=50).ends == ((line.version, 200),)
