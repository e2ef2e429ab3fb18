"""Parts of a running edge: buckets, secrets, keys under which requests are stored, event ids."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from services.gateway.edge.buckets import RouteBuckets
from services.gateway.edge.commanding import ReplayTags, command_id
from services.gateway.edge.recent_requests import RecentRequests
from services.gateway.edge.reloading import restart_changes
from services.gateway.edge.running_plan import RunningRoute, run_plan
from services.gateway.edge.secrets import KEPT_NS, SecretKeeper, SecretTable, references_of
from services.gateway.edge.storing import store_key
from snavio.clock import ManualClock
from snavio.edge.plan import TokenBucket
from snavio.edge.references import SecretReference, parse_reference
from snavio.edge.signatures import VerifiedSignature
from snavio.edge.topics import event_id, parse_event_id, route_topic
from snavio.errors import BadRequest, NotFound, Unavailable
from tests.support.hookaidofiles import plan_of

SECOND = 1_000_000_000
API = "pull_api { auth token raw:t }\n"


class Source:
    """A source whose answers a test sets."""

    def __init__(self) -> None:
        self.values: dict[str, bytes | Exception] = {}

    async def read(self, reference: SecretReference) -> bytes:
        found = self.values[reference.name]
        if isinstance(found, Exception):
            raise found
        return found


def test_a_bucket_refuses_beyond_its_burst_and_fills_at_its_rate() -> None:
    clock = ManualClock()
    bucket = RouteBuckets(clock).adopt({"r": TokenBucket(2.0, 3)})["r"]
    assert [bucket.take(clock.mono_ns()) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(clock.mono_ns()) == pytest.approx(0.5)
    clock.advance(seconds=0.5)
    assert bucket.wait_s(clock.mono_ns()) == 0, "looking takes nothing"
    assert bucket.take(clock.mono_ns()) == 0
    assert bucket.take(clock.mono_ns()) > 0


def test_a_reload_fills_no_bucket_also_when_its_rate_changes() -> None:
    clock = ManualClock()
    buckets = RouteBuckets(clock)
    first = buckets.adopt({"r": TokenBucket(1.0, 5)})["r"]
    for _ in range(5):
        first.take(clock.mono_ns())
    assert buckets.adopt({"r": TokenBucket(1.0, 5)})["r"] is first
    changed = buckets.adopt({"r": TokenBucket(10.0, 50)})["r"]
    assert changed.take(clock.mono_ns()) > 0
    clock.advance(seconds=0.1)
    assert changed.take(clock.mono_ns()) == 0


async def test_secrets_are_read_together_and_every_one_that_cannot_be_is_named() -> None:
    source = Source()
    source.values = {"A": b"a", "B": NotFound("It is not set."), "C": Unavailable("It is away.")}
    references = [parse_reference(f"env:{name}") for name in "ABC"]
    with pytest.raises(BadRequest) as told:
        await SecretKeeper(source, clock=ManualClock()).load(references)
    assert "env:B" in str(told.value) and "env:C" in str(told.value) and "env:A" not in str(told.value)


async def test_a_secret_of_a_silent_source_verifies_for_a_minute_and_then_nothing() -> None:
    source, clock = Source(), ManualClock()
    source.values = {"/s": b"one"}
    reference = parse_reference("file:/s")
    keeper = SecretKeeper(source, clock=clock)
    table = await keeper.load([reference])
    keeper.use(table)
    source.values["/s"] = Unavailable("It is away.")
    await keeper.refresh()
    assert table.value(reference) == b"one"
    clock.advance(seconds=KEPT_NS / SECOND + 1)
    with pytest.raises(Unavailable):
        table.value(reference)
    source.values["/s"] = b"two"
    await keeper.refresh()
    assert table.value(reference) == b"two"
    source.values["/s"] = NotFound("It is gone.")
    await keeper.refresh()
    assert table.value(reference) is None


def route_of(
    text: str, *, clock: ManualClock | None = None, secrets: dict[str, bytes] | None = None
) -> RunningRoute:
    clock, plan = clock or ManualClock(), plan_of(API + text)
    source = Source()
    source.values = {each.name: (secrets or {}).get(each.name, b"k") for each in references_of(plan)}
    table: SecretTable = asyncio.run(SecretKeeper(source, clock=clock).load(references_of(plan)))
    return run_plan(plan, secrets=table, buckets=RouteBuckets(clock), generation=1, now_unix_ns=0).routes[0]


def test_only_keys_that_were_valid_at_the_signed_time_verify() -> None:
    running = route_of(
        'secrets { secret "old" { value raw:one; valid_from "2026-01-01T00:00:00Z"; '
        'valid_until "2026-02-01T00:00:00Z" }\n'
        'secret "new" { value raw:two; valid_from "2026-01-31T00:00:00Z" } }\n'
        "/a { auth hmac { secret_ref old; secret_ref new }\n pull { path /p } }"
    )
    assert running.keys is not None
    days = {"2026-01-15": ["old"], "2026-01-31T12": ["old", "new"], "2026-02-02": ["new"], "2025-12-31": []}
    from datetime import UTC, datetime

    for day, names in days.items():
        at = datetime.fromisoformat(day + (":00" if "T" in day else "")).replace(tzinfo=UTC)
        assert [name for name, _ in running.keys(int(at.timestamp()) * SECOND)] == names, day


VERIFIED = VerifiedSignature("k", "v2", 1, tag=b"t" * 32)
BODY_ONLY = VerifiedSignature("k", "body", None)


def test_the_verified_tag_is_the_key_where_it_covers_a_time_and_the_senders_id_where_it_does_not() -> None:
    timed = route_of("/a { auth hmac raw:k\n pull { path /p } }")
    key = store_key(timed, VERIFIED, "")
    assert key.once and key.replay_ms == 600_000, "twice the tolerance"
    github = route_of("/a { auth hmac { provider github; secret raw:k }\n pull { path /p } }")
    assert github.delivery_ids == ("x-github-delivery",)
    key = store_key(github, BODY_ONLY, "72d3162e")
    assert not key.once and key.replay_ms == 86_400_000
    assert store_key(github, BODY_ONLY, "") == store_key(github, None, ""), "without an id there is no key"


def test_an_id_that_nobody_signed_does_not_take_the_place_of_the_tag() -> None:
    running = route_of("/a { auth hmac raw:k\n idempotency header X-Id window 1h\n pull { path /p } }")
    one, other = store_key(running, VERIFIED, "id-1"), store_key(running, VERIFIED, "id-2")
    assert one == other and one.once, "a captured request under another id is the same request"
    signed = route_of(
        "/a { auth hmac { provider standard_webhooks; secret raw:k }\n idempotency header webhook-id window 1h\n"
        " pull { path /p } }"
    )
    key = store_key(signed, VerifiedSignature("k", "id.time.body", 1, b"t" * 32, signed_id="m1"), "m1")
    assert not key.once and key.replay_ms == 3_600_000


def test_equal_ids_of_two_routes_are_two_keys() -> None:
    one = route_of("/a { auth hmac { provider github; secret raw:k }\n pull { path /p } }")
    two = route_of("/b { auth hmac { provider github; secret raw:k }\n pull { path /p } }")
    assert store_key(one, BODY_ONLY, "x").key != store_key(two, BODY_ONLY, "x").key


def test_a_command_has_the_same_id_for_the_same_delivery() -> None:
    first = command_id("/a", delivery_id="d", tag=b"")
    assert (
        first == command_id("/a", delivery_id="d", tag=b"other") != command_id("/b", delivery_id="d", tag=b"")
    )
    assert first is not None and first[14] == "8"
    assert command_id("/a", delivery_id="", tag=b"") is None


def test_a_tag_of_a_command_is_claimed_once_until_it_is_released_or_forgotten() -> None:
    clock = ManualClock()
    tags = ReplayTags(clock)
    assert tags.claim(b"x", 10 * SECOND)
    assert not tags.claim(b"x", 10 * SECOND)
    tags.release(b"x")
    assert tags.claim(b"x", 10 * SECOND)
    clock.advance(seconds=11)
    assert tags.claim(b"x", 10 * SECOND)


@given(st.binary(min_size=5, max_size=5), st.integers(0, 2**64 - 1))
def test_the_id_of_an_event_leads_back_to_its_topic_and_message(topic_hash: bytes, msg_id: int) -> None:
    text = event_id(topic_hash, msg_id)
    assert parse_event_id(text) == (topic_hash, msg_id)
    for other in (text.upper(), text + "a", text[:-1], text.removeprefix("evt_"), text[:-1] + "1"):
        assert parse_event_id(other) is None


def test_an_id_in_another_spelling_is_no_id() -> None:
    text = event_id(b"\0" * 5, 0)
    # The last character has a bit that means nothing.
    assert parse_event_id(text[:-1] + "b") is None


def test_two_targets_of_a_route_have_two_topics_and_routes_that_look_alike_do_too() -> None:
    names = {
        route_topic("acme", path, target).topic
        for path in ("/a-b", "/a/b", "/A/B")
        for target in ("pull", "x")
    }
    assert len(names) == 6
    assert all(name.startswith("acme/own/edge.a-b.") for name in names)
    assert route_topic("acme", "/" + "x" * 2000).topic == route_topic("acme", "/" + "x" * 2000).topic
    assert len(route_topic("acme", "/" + "x" * 2000).topic) < 128


def test_refused_requests_do_not_drive_accepted_ones_out_of_memory() -> None:
    recent = RecentRequests(most=3)
    for number in range(10):
        recent.keep(RequestNotes(f"bad{number}", "ingress", number), EdgeAnswer(401, "replayed"), 1)
        recent.keep(
            RequestNotes(f"good{number}", "ingress", number),
            EdgeAnswer(202, "queued", event_ids=(f"e{number}",)),
            1,
        )
    assert [each["request_id"] for each in recent.newest(most=9, refused_only=True)] == [
        "bad9",
        "bad8",
        "bad7",
    ]
    found = recent.find("e9")
    assert found is not None and found["request_id"] == "good9"
    assert recent.find("e1") is None and recent.find("good1") is None


def test_what_a_reload_cannot_change_is_named_and_nothing_else() -> None:
    one = plan_of(API + "/a { pull { path /p } }")
    assert restart_changes(one, plan_of(API + "/b { rate_limit { rps 5 }\n pull { path /p } }")) == ()
    two = plan_of(
        "tenant acme\ningress { listen :9999 }\n"
        + API
        + "observability { metrics on }\n/a { pull { path /p } }"
    )
    assert restart_changes(one, two) == ("tenant", "ingress listen", "observability")
