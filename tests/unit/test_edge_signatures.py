"""Signatures of requests: the published examples of providers, our own forms, and everything that is not let in."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.edge.plan import HmacAuth
from snavio.edge.requests import EdgeRequest
from snavio.edge.signatures import PROVIDERS, SignatureRefusal, VerifiedSignature, verify
from tests.support.hookaidofiles import plan_of

SECOND = 1_000_000_000
NOW = 1_790_000_000
KEY = b"a shared secret"
BODY = b'{"event":"ping"}'


def auth(provider: str = "", more: str = "") -> HmacAuth:
    said = f"provider {provider}; " if provider else ""
    (route,) = plan_of(
        f"pull_api {{ auth token raw:t }}\n/hook {{ auth hmac {{ {said}secret raw:x {more} }}\n pull {{ path /p }} }}"
    ).routes
    assert route.auth.hmac is not None
    return route.auth.hmac


def judged(
    given: HmacAuth,
    headers: dict[str, str],
    body: bytes = BODY,
    *,
    keys: list[bytes] | None = None,
    now: int = NOW,
    path: str = "/hook",
    query: str = "",
    method: str = "POST",
) -> VerifiedSignature | SignatureRefusal:
    request = EdgeRequest(
        method,
        path,
        query,
        [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        None,
    )
    named = [(f"key {place}", key) for place, key in enumerate([KEY] if keys is None else keys)]
    return verify(given, request, body, keys=lambda _at: named, now_unix_ns=now * SECOND)


def reason(outcome: VerifiedSignature | SignatureRefusal) -> str:
    assert isinstance(outcome, SignatureRefusal)
    return outcome.reason


def tag(text: bytes, key: bytes = KEY) -> str:
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def own_headers(
    form: str, *, body: bytes = BODY, now: int = NOW, nonce: str = "n-1", path: str = "/hook"
) -> dict[str, str]:
    digest = hashlib.sha256(body).hexdigest()
    text = {
        "v2": f"v2\nPOST\n{path}\n{now}\n{nonce}\n{digest}",
        "time-first": f"{now}\nPOST\n{path}\n{digest}",
        "method-first": f"POST\n{path}\n{now}\n{digest}",
    }[form]
    return {"X-Signature": tag(text.encode()), "X-Timestamp": str(now), "X-Nonce": nonce}


# -- published examples -----------------------------------------------------------------------------------


def test_the_example_that_github_publishes_is_verified() -> None:
    headers = {
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }
    outcome = judged(auth("github"), headers, b"Hello, World!", keys=[b"It's a Secret to Everybody"])
    assert isinstance(outcome, VerifiedSignature)
    assert (outcome.form, outcome.tag) == ("body", b"")
    assert reason(
        judged(auth("github"), headers, b"Hello, World?", keys=[b"It's a Secret to Everybody"])
    ) == ("signature-mismatch")


def test_the_header_that_stripe_publishes_is_read_and_its_construction_verified() -> None:
    """The example of Stripe's manual, with its time, its two schemes and its line as they stand there."""
    shown = (
        "t=1492774577,"
        "v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd,"
        "v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
    )
    # Its secret is not published, so its tag cannot match; that it was read as a tag is what the refusal tells.
    assert reason(judged(auth("stripe"), {"Stripe-Signature": shown}, now=1492774577)) == "signature-mismatch"
    assert reason(judged(auth("stripe"), {"Stripe-Signature": shown}, now=1492774577 + 301)) == (
        "timestamp-outside-window"
    )
    right = tag(b"1492774577." + BODY)
    outcome = judged(auth("stripe"), {"Stripe-Signature": shown + f",v1={right}"}, now=1492774577 + 299)
    assert isinstance(outcome, VerifiedSignature)
    assert outcome.tag == bytes.fromhex(right)


def test_the_example_of_slack_is_verified() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
        b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
        b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    key = b"8f742231b10e8888abcd99yyyzzz85a5"
    assert isinstance(judged(auth("slack"), headers, body, keys=[key], now=1531420618), VerifiedSignature)
    assert (
        reason(judged(auth("slack"), headers, body, keys=[key], now=1531420618 + 400))
        == "timestamp-outside-window"
    )


def test_the_example_of_standard_webhooks_is_verified() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    body, key = b'{"test": 2432232314}', b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    outcome = judged(auth("standard_webhooks"), headers, body, keys=[key], now=1614265330)
    assert isinstance(outcome, VerifiedSignature)
    assert outcome.signed_id == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    svix = {name.replace("webhook-", "svix-"): value for name, value in headers.items()}
    assert isinstance(
        judged(auth("standard_webhooks"), svix, body, keys=[key], now=1614265330), VerifiedSignature
    )
    moved = {**headers, "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek.1"}
    assert (
        reason(judged(auth("standard_webhooks"), moved, body, keys=[key], now=1614265330))
        == "signature-malformed"
    )


def test_cituro_counts_in_milliseconds() -> None:
    stamp = NOW * 1000 + 123
    right = {"X-CITURO-SIGNATURE": f"t={stamp},s={tag(b'%d.' % stamp + BODY)}"}
    assert isinstance(judged(auth("cituro"), right), VerifiedSignature)
    seconds = {"X-CITURO-SIGNATURE": f"t={NOW},s={tag(b'%d.' % NOW + BODY)}"}
    assert reason(judged(auth("cituro"), seconds)) == "timestamp-outside-window"


def test_gitea_shopify_and_gitlab_are_verified_in_their_own_ways() -> None:
    assert isinstance(judged(auth("gitea"), {"X-Gitea-Signature": tag(BODY)}), VerifiedSignature)
    shopify = base64.b64encode(hmac.digest(KEY, BODY, "sha256")).decode()
    assert isinstance(judged(auth("shopify"), {"X-Shopify-Hmac-Sha256": shopify}), VerifiedSignature)
    assert isinstance(judged(auth("gitlab"), {"X-Gitlab-Token": KEY.decode()}), VerifiedSignature)
    for wrong in ("", KEY.decode() + "x", KEY.decode()[:-1]):
        assert reason(judged(auth("gitlab"), {"X-Gitlab-Token": wrong})) == "signature-mismatch"


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_a_request_without_its_signature_is_missing_one(provider: str) -> None:
    assert reason(judged(auth(provider), {})) == "signature-missing"


# -- our own forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["v2", "time-first", "method-first"])
def test_each_of_the_three_forms_is_verified(form: str) -> None:
    outcome = judged(auth(), own_headers(form))
    assert isinstance(outcome, VerifiedSignature)
    assert (outcome.form, outcome.signed_unix_ns) == (form, NOW * SECOND)


def test_the_nonce_is_bound_only_where_it_is_signed() -> None:
    for form, bound in (("v2", True), ("time-first", False), ("method-first", False)):
        headers = own_headers(form)
        first = judged(auth(), headers)
        other = judged(auth(), {**headers, "X-Nonce": "another"})
        assert isinstance(first, VerifiedSignature)
        if bound:
            assert reason(other) == "signature-mismatch"
        else:
            # It is let through here, under the same tag: the tag is the key under which it is stored once.
            assert isinstance(other, VerifiedSignature) and other.tag == first.tag


def test_the_second_form_of_ours_covers_the_query() -> None:
    digest = hashlib.sha256(BODY).hexdigest()
    text = f"v2\nPOST\n/hook?a=1\n{NOW}\nn\n{digest}".encode()
    headers = {"X-Signature": tag(text), "X-Timestamp": str(NOW), "X-Nonce": "n"}
    assert isinstance(judged(auth(), headers, query="a=1"), VerifiedSignature)
    assert reason(judged(auth(), headers, query="a=2")) == "signature-mismatch"


def test_the_time_is_judged_before_any_key_is_asked_for() -> None:
    asked: list[int] = []

    def keys(at: int) -> list[tuple[str, bytes]]:
        asked.append(at)
        return [("k", KEY)]

    headers = own_headers("v2", now=NOW - 301)
    request = EdgeRequest(
        "POST", "/hook", "", [(n.lower().encode(), v.encode()) for n, v in headers.items()], None
    )
    outcome = verify(auth(), request, BODY, keys=keys, now_unix_ns=NOW * SECOND)
    assert reason(outcome) == "timestamp-outside-window" and asked == []
    outcome = verify(auth(), request, BODY, keys=keys, now_unix_ns=(NOW - 1) * SECOND)
    assert isinstance(outcome, VerifiedSignature) and asked == [(NOW - 301) * SECOND]


def test_every_key_and_every_tag_is_tried_during_a_roll() -> None:
    old, new = b"old secret", b"new secret"
    for key in (old, new):
        headers = {"Stripe-Signature": f"t={NOW},v1={'0' * 64},v1={tag(b'%d.' % NOW + BODY, key)}"}
        outcome = judged(auth("stripe"), headers, keys=[old, new])
        assert isinstance(outcome, VerifiedSignature) and outcome.key == f"key {[old, new].index(key)}"
    assert reason(judged(auth("stripe"), headers, keys=[])) == "no-valid-key"


def test_more_tags_than_a_roll_needs_are_not_tried() -> None:
    many = ",".join([f"v1={'0' * 64}"] * 40 + [f"v1={tag(b'%d.' % NOW + BODY)}"])
    assert reason(judged(auth("stripe"), {"Stripe-Signature": f"t={NOW},{many}"})) == "signature-mismatch"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Signature", "zz" * 32),
        ("X-Signature", "ab" * 31 + " a"),
        ("X-Signature", "ab" * 33),
        ("X-Nonce", "x" * 129),
        ("X-Nonce", "a b"),
        ("X-Nonce", ""),
        ("X-Timestamp", "+1790000000"),
        ("X-Timestamp", "1_790_000_000"),
        ("X-Timestamp", "-5"),
        ("X-Timestamp", "1790000000.5"),
        ("X-Timestamp", "9" * 17),
    ],
)
def test_a_header_in_another_form_is_malformed(name: str, value: str) -> None:
    assert reason(judged(auth(), {**own_headers("v2"), name: value})) == "signature-malformed"


def test_a_header_that_is_there_twice_is_no_header() -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in own_headers("v2").items()]
    request = EdgeRequest("POST", "/hook", "", [*headers, (b"x-signature", b"0" * 64)], None)
    outcome = verify(auth(), request, BODY, keys=lambda _: [("k", KEY)], now_unix_ns=NOW * SECOND)
    assert reason(outcome) == "signature-missing"


@given(
    st.sampled_from(["", *PROVIDERS]),
    st.dictionaries(
        st.sampled_from(
            [
                "x-signature",
                "x-timestamp",
                "x-nonce",
                "stripe-signature",
                "x-hub-signature-256",
                "x-gitlab-token",
                "webhook-id",
                "webhook-timestamp",
                "webhook-signature",
                "x-shopify-hmac-sha256",
                "x-slack-signature",
                "x-slack-request-timestamp",
                "x-cituro-signature",
                "x-gitea-signature",
            ]
        ),
        st.text(st.characters(max_codepoint=255), max_size=200),
    ),
)
def test_nothing_of_a_request_is_in_a_refusal_and_nothing_makes_it_fail(
    provider: str, headers: dict[str, str]
) -> None:
    outcome = judged(_AUTHS[provider], headers)
    assert isinstance(outcome, SignatureRefusal)
    for value in headers.values():
        assert len(value) < 12 or value not in outcome.sentence


_AUTHS = {name: auth(name) for name in ["", *PROVIDERS]}
