import hashlib
import itertools
import json
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nacl.exceptions
import nacl.signing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snavio.native import blake3_digest, blake3_hex, ed25519_public_key, ed25519_sign, ed25519_verify, uuid7

ROOT = Path(__file__).resolve().parents[2]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "ed25519.json").read_text())
SEEDS = st.binary(min_size=32, max_size=32)
MESSAGES = st.binary(max_size=300)
UNHURRIED = settings(deadline=None)  # A busy machine is no failure.


def named(vectors: list[dict[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


def from_hex(vector: dict[str, str], *fields: str) -> list[bytes]:
    return [bytes.fromhex(vector[field]) for field in fields]


@named(VECTORS["valid"])
def test_published_signature_is_made_and_accepted(vector: dict[str, str]) -> None:
    seed, key, message, signature = from_hex(vector, "seed", "public_key", "message", "signature")
    assert ed25519_public_key(seed) == key
    assert ed25519_sign(seed, message) == signature
    assert ed25519_verify(key, message, signature)


@named(VECTORS["refused"])
def test_signature_that_only_a_lax_verifier_accepts_is_refused(vector: dict[str, str]) -> None:
    assert not ed25519_verify(*from_hex(vector, "public_key", "message", "signature"))


@UNHURRIED
@given(SEEDS, MESSAGES)
def test_signatures_are_libsodiums(seed: bytes, message: bytes) -> None:
    theirs = nacl.signing.SigningKey(seed)
    assert ed25519_public_key(seed) == bytes(theirs.verify_key)
    assert ed25519_sign(seed, message) == theirs.sign(message).signature
    assert ed25519_verify(bytes(theirs.verify_key), message, theirs.sign(message).signature)


@UNHURRIED
@given(SEEDS, MESSAGES, st.data())
def test_no_bit_of_key_message_or_signature_can_be_flipped(
    seed: bytes, message: bytes, data: st.DataObject
) -> None:
    parts = [ed25519_public_key(seed), message + b".", ed25519_sign(seed, message + b".")]
    chosen = data.draw(st.integers(0, 2))
    spoilt = bytearray(parts[chosen])
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    parts[chosen] = bytes(spoilt)
    assert not ed25519_verify(*parts)


@UNHURRIED
@given(st.binary(min_size=32, max_size=32), MESSAGES, st.binary(min_size=64, max_size=64))
def test_nothing_that_libsodium_refuses_is_accepted(key: bytes, message: bytes, signature: bytes) -> None:
    try:
        nacl.signing.VerifyKey(key).verify(message, signature)
    except nacl.exceptions.BadSignatureError:
        assert not ed25519_verify(key, message, signature)


@UNHURRIED
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_length_of_key_and_signature_is_answered_with_false(key: bytes, signature: bytes) -> None:
    assert ed25519_verify(key, b"message", signature) is False


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_seed_of_another_length_is_refused_without_being_shown(length: int) -> None:
    with pytest.raises(ValueError, match=r"^An Ed25519 seed is 32 bytes long\.$"):
        ed25519_public_key(b"s" * length)
    with pytest.raises(ValueError, match=r"^An Ed25519 seed is 32 bytes long\.$"):
        ed25519_sign(b"s" * length, b"")


# From the BLAKE3 authors' test vectors: the input counts 0, 1, … 250 and starts again.
BLAKE3 = {
    0: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    1: "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
    1024: "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
    1025: "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
}


@pytest.mark.parametrize("length", BLAKE3)
def test_blake3_is_the_published_value(length: int) -> None:
    message = bytes(index % 251 for index in range(length))
    assert blake3_hex(message) == BLAKE3[length]


@UNHURRIED
@given(MESSAGES, MESSAGES)
def test_blake3_is_a_digest_of_32_bytes_and_not_another_hash(one: bytes, other: bytes) -> None:
    assert blake3_digest(one).hex() == blake3_hex(one)
    assert len(blake3_digest(one)) == 32
    assert blake3_digest(one) not in (hashlib.sha256(one).digest(), hashlib.blake2s(one).digest())
    assert (blake3_digest(one) == blake3_digest(other)) is (one == other)


def test_ids_are_version_7_in_lower_case() -> None:
    for _ in range(2_000):
        text = uuid7()
        made = uuid.UUID(text)
        assert str(made) == text
        assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_ids_grow_strictly() -> None:
    made = [uuid7() for _ in range(50_000)]
    assert all(one < other for one, other in itertools.pairwise(made))


def test_ids_differ_in_their_random_part() -> None:
    assert len({uuid7()[-8:] for _ in range(1_000)}) > 990


def test_ids_grow_in_every_thread_and_are_never_given_twice() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            runs = list(pool.map(lambda _: [uuid7() for _ in range(5_000)], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert all(run == sorted(run) for run in runs)
    assert len({made for run in runs for made in run}) == 8 * 5_000


def test_later_id_is_larger_across_threads() -> None:
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(uuid7).result() for _ in range(2_000)]
    assert made == sorted(made)


FORKING = """
import os
from snavio.native import uuid7
uuid7()  # Fills the pool that the child inherits.
child = os.fork()
os.write(1, "".join(uuid7()[-8:] + "\\n" for _ in range(20)).encode())
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_does_not_repeat_its_parents_randomness() -> None:
    # In a process of its own: forking this one would take other tests' threads and channels along.
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert len(set(done.stdout.split())) == 2 * 20
