import random
from pathlib import Path

import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import (
    BadRequest,
    Conflict,
    NotAllowed,
    NotFound,
    Saturated,
    SnavioError,
    Unauthenticated,
    Unavailable,
)
from snavio.native import read_verdicts
from snavio.sdk.keyring import Keyring, SigningKey
from snavio.sdk.outcome import FairnessShares, Outcome
from snavio.sdk.pending_sends import explain
from snavio.sdk.retry import CAPACITY, INITIAL, RetryBudget, pause_s
from snavio.sdk.settings import Endpoints
from snavio.v1.batch_pb2 import Refusal, Verdicts

SECOND = 1_000_000_000
ID = "01890000-0000-7000-8000-000000000001"


@pytest.mark.parametrize("verdict", [Verdict.DELIVERED, Verdict.DUPLICATE])
def test_a_delivered_outcome_raises_nothing(verdict: Verdict) -> None:
    outcome = Outcome(verdict, ID)
    outcome.raise_for_refusal()
    assert outcome.delivered


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (Verdict.ACL_DENY, NotAllowed),
        (Verdict.SUSPENDED, NotAllowed),
        (Verdict.ROUTE_MISSING, NotFound),
        (Verdict.CONFLICT, Conflict),
        (Verdict.RATE_LIMIT_EXCEEDED, Saturated),
        (Verdict.DELIVERY_FAILURE, Unavailable),
        (Verdict.OUTCOME_UNKNOWN, Unavailable),
        (Verdict.HMAC_MISMATCH, Unauthenticated),
        (Verdict.MALFORMED, BadRequest),
    ],
)
def test_a_refusal_raises_the_error_that_fits_it(verdict: Verdict, error: type[SnavioError]) -> None:
    with pytest.raises(error) as raised:
        Outcome(verdict, ID, detail="because").raise_for_refusal()
    assert raised.value.reason == verdict.reason
    assert ID in str(raised.value)


def test_every_verdict_but_a_delivery_raises() -> None:
    for verdict in Verdict:
        if not verdict.delivered:
            with pytest.raises(SnavioError):
                Outcome(verdict, ID).raise_for_refusal()


def test_a_saturated_outcome_raises_with_its_hint() -> None:
    with pytest.raises(Saturated) as raised:
        Outcome(Verdict.SATURATED, ID, retry_after_ms=700).raise_for_refusal()
    assert raised.value.retry_after_ms == 700


def test_an_outcome_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Outcome(Verdict.DELIVERED, ID).attempts = 2  # type: ignore[misc]


def test_retries_stay_a_tenth_of_the_traffic_after_the_first_few() -> None:
    budget = RetryBudget(now_mono_ns=0)
    first = sum(budget.withdraw(now_mono_ns=0) for _ in range(5000))
    assert first == INITIAL
    budget.deposit(3000)
    assert sum(budget.withdraw(now_mono_ns=0) for _ in range(5000)) == 300


def test_a_quiet_producer_may_always_retry_a_little() -> None:
    budget = RetryBudget(now_mono_ns=0)
    while budget.withdraw(now_mono_ns=0):
        pass
    assert budget.withdraw(now_mono_ns=SECOND)


def test_the_retry_budget_does_not_grow_without_bound() -> None:
    budget = RetryBudget(now_mono_ns=0)
    budget.deposit(10_000_000)
    assert sum(budget.withdraw(now_mono_ns=3600 * SECOND) for _ in range(5000)) == CAPACITY


def test_a_pause_is_never_shorter_than_the_hint_and_never_the_same_for_all() -> None:
    jitter = random.Random(1)
    pauses = {pause_s(3, 500, jitter) for _ in range(100)}
    assert min(pauses) >= 0.5
    assert len(pauses) == 100


def key(number: int, *, primary_from: int, not_after: int = 0, revoked: bool = False) -> SigningKey:
    return SigningKey(f"hmac-v{number}", bytes([number]) * 32, 0, not_after, primary_from, revoked)


def keyring(*keys: SigningKey, primary: str = "") -> Keyring:
    ring = Keyring()
    ring.replace(keys, source="acme/billing", primary=primary)
    return ring


def test_the_newest_key_signs_once_its_time_as_primary_has_come() -> None:
    ring = keyring(key(1, primary_from=0), key(2, primary_from=100))
    assert ring.signing_key(99).version == "hmac-v1"
    assert ring.signing_key(100).version == "hmac-v2"


def test_a_revoked_or_ended_key_does_not_sign() -> None:
    ring = keyring(
        key(1, primary_from=0), key(2, primary_from=10, not_after=50), key(3, primary_from=20, revoked=True)
    )
    assert ring.signing_key(49).version == "hmac-v2"
    assert ring.signing_key(50).version == "hmac-v1"


def test_a_slow_clock_falls_back_to_the_primary_that_signer_named() -> None:
    ring = keyring(key(1, primary_from=1000), primary="hmac-v1")
    assert ring.signing_key(1).version == "hmac-v1"


def test_without_a_usable_key_nothing_is_signed() -> None:
    with pytest.raises(Unavailable):
        keyring(key(1, primary_from=0, revoked=True), primary="hmac-v1").signing_key(1)


def test_secrets_show_in_no_repr() -> None:
    secret = key(65, primary_from=0)
    ring = keyring(secret)
    for text in (repr(secret), repr(ring), str(ring)):
        assert "AAAA" not in text


def test_only_an_answer_that_changes_something_is_a_new_generation() -> None:
    ring = keyring(key(1, primary_from=0))
    before = ring.generation
    ring.replace([key(1, primary_from=0)], source="acme/billing", primary="")
    assert ring.generation == before
    ring.replace([key(2, primary_from=0)], source="acme/billing", primary="")
    assert ring.generation == before + 1


def test_endpoints_come_from_the_mesh_section(tmp_path: Path) -> None:
    config = tmp_path / "snavio.toml"
    config.write_text('[mesh]\nshield = "10.0.0.1:1"\nfast = "10.0.0.2:2"\n[shield]\nx = 1\n')
    endpoints = Endpoints.from_config(config)
    assert (endpoints.shield, endpoints.signer) == ("10.0.0.1:1", "127.0.0.1:7404")


@pytest.mark.parametrize("address", ["", "localhost", ":7401", "localhost:", "localhost:http"])
def test_an_address_without_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(BadRequest, match="shield"):
        Endpoints(shield=address)


def test_a_fairness_refusal_tells_its_shares_and_a_limit_tells_when_to_come_again() -> None:
    refusals = [
        Refusal(
            index=1,
            reason=Verdict.FAIRNESS_VIOLATION,  # type: ignore[arg-type]
            retry_after_ms=30_000,
            throttle_until_unix_ns=7,
            source_share=0.91,
            competing_share=0.12,
            dispatch_volume=60,
        ),
        Refusal(index=3, reason=Verdict.RATE_LIMIT_EXCEEDED, retry_after_ms=5, throttle_until_unix_ns=9),  # type: ignore[arg-type]
    ]
    codes = bytes([1, 68, 68, 64])
    answers = explain(read_verdicts(Verdicts(codes=codes, refusal=refusals).SerializeToString()), 0, codes)
    assert [answer.shares for answer in answers] == [None, *[FairnessShares(0.91, 0.12, 60)] * 2, None]
    assert [answer.throttle_until_unix_ns for answer in answers] == [0, 7, 7, 9]
    assert [answer.retry_after_ms for answer in answers] == [0, 30_000, 30_000, 5]
