"""Webhooks at a listener of the edge: who is let in, what is stored, and what each answer says."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from snavio.clock import ManualClock
from tests.support.edge import API, SECRET, MemoryMailbox, github, local_edge, signed

OPEN = API + "/open { pull { path /open } }\n"
SIGNED = API + '/s { auth hmac "raw:a shared secret"\n pull { path /s } }\n'
GITHUB = API + '/gh { auth hmac { provider github; secret "raw:a shared secret" }\n pull { path /gh } }\n'


async def test_a_request_is_stored_as_it_came_without_what_let_it_in(tmp_path: Path) -> None:
    text = API + "/b { auth basic ci secret\n pull { path /b } }\n"
    async with local_edge(tmp_path, text) as edge:
        login = "Basic " + base64.b64encode(b"ci:secret").decode()
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        headers = {"Authorization": login, "Cookie": "a=b", "X-Kind": "one", "traceparent": trace}
        reply = await edge.post("/b/c%C3%A9/?q=1&r=%20", b'{"a":1}', headers)
        assert reply.said == (202, "queued")
        assert reply.document["id"].startswith("evt_") and reply.headers["X-Request-ID"].startswith("req_")
        (stored,) = edge.mailbox.everything
        assert (stored.method, stored.route, stored.path, stored.query) == (
            "POST",
            "/b",
            "/b/c%C3%A9/",
            "q=1&r=%20",
        )
        assert (stored.body, stored.body_size, stored.caller, stored.remote) == (
            b'{"a":1}',
            0,
            "basic:ci",
            "127.0.0.1",
        )
        assert stored.request_id == reply.headers["X-Request-ID"]
        names = {each.name for each in stored.header}
        assert "x-kind" in names and not names & {"authorization", "cookie"}


@pytest.mark.parametrize(
    "login", [None, "Basic", "Basic !!", "Bearer x", "Basic " + base64.b64encode(b"ci").decode()]
)
async def test_a_login_in_another_form_is_401_with_a_challenge(tmp_path: Path, login: str | None) -> None:
    async with local_edge(tmp_path, API + "/b { auth basic ci secret\n pull { path /b } }\n") as edge:
        reply = await edge.post("/b", headers={"Authorization": login} if login else {})
        assert reply.said == (401, "unauthorized")
        assert reply.headers["WWW-Authenticate"].startswith("Basic ")
        for pair in (b"ci:wrong", b"nobody:secret", b":", b"ci:secret2"):
            shown = "Basic " + base64.b64encode(pair).decode()
            assert (await edge.post("/b", headers={"Authorization": shown})).status == 401
        assert edge.mailbox.everything == []


async def test_a_captured_request_is_refused_under_its_own_and_under_any_other_nonce(tmp_path: Path) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        body = b"pay 5"
        headers = signed(body, path="/s", nonce="one")
        assert (await edge.post("/s", body, headers)).said == (202, "queued")
        assert (await edge.post("/s", body, headers)).said == (401, "replayed")
        assert (await edge.post("/s", body, {**headers, "X-Nonce": "two"})).said == (
            401,
            "signature-mismatch",
        )
        assert (await edge.post("/s", b"pay 6", headers)).said == (401, "signature-mismatch")
        # The form of others signs no nonce: what counts is the tag.
        stamp = headers["X-Timestamp"]
        text = f"{stamp}\nPOST\n/s\n{hashlib.sha256(body).hexdigest()}".encode()
        other = {**headers, "X-Signature": hmac.new(SECRET, text, hashlib.sha256).hexdigest()}
        assert (await edge.post("/s", body, other)).said == (202, "queued")
        assert (await edge.post("/s", body, {**other, "X-Nonce": "two"})).said == (401, "replayed")
        assert len(edge.mailbox.everything) == 2


async def test_a_full_topic_is_503_and_the_same_signature_is_202_when_there_is_room(tmp_path: Path) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        edge.mailbox.capacity = 0
        headers = signed(b"x", path="/s")
        reply = await edge.post("/s", b"x", headers)
        assert reply.said == (503, "saturated") and reply.headers["Retry-After"] == "2"
        edge.mailbox.capacity = 10
        assert (await edge.post("/s", b"x", headers)).said == (202, "queued")
        assert (await edge.post("/s", b"x", headers)).said == (401, "replayed")


async def test_a_mailbox_that_is_away_burns_no_signature(tmp_path: Path) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        edge.mailbox.away = True
        headers = signed(b"x", path="/s")
        reply = await edge.post("/s", b"x", headers)
        assert reply.said == (503, "unavailable") and int(reply.headers["Retry-After"]) >= 1
        edge.mailbox.away = False
        assert (await edge.post("/s", b"x", headers)).said == (202, "queued")


async def test_a_request_whose_answer_was_lost_is_no_replay_of_itself(tmp_path: Path) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        edge.mailbox.mute = True
        headers = signed(b"x", path="/s")
        assert (await edge.post("/s", b"x", headers)).status == 503
        edge.mailbox.mute = False
        assert (await edge.post("/s", b"x", headers)).said == (202, "queued")
        assert (await edge.post("/s", b"x", headers)).said == (401, "replayed")
        assert len(edge.mailbox.everything) == 1


async def test_githubs_redeliver_is_a_duplicate_and_no_replay(tmp_path: Path) -> None:
    async with local_edge(tmp_path, GITHUB) as edge:
        headers = github(b"{}", delivery="72d3162e-cc78-11e3-81ab-4c9367dc0958")
        first = await edge.post("/gh", b"{}", headers)
        assert first.said == (202, "queued")
        # A proxy on the way marks every request with another id of its own.
        again = await edge.post("/gh", b"{}", {**headers, "CF-Ray": "another"})
        assert again.said == (202, "duplicate")
        assert (await edge.post("/gh", b"{}", headers)).said == (202, "duplicate")
        # The same body in another delivery is another event.
        assert (await edge.post("/gh", b"{}", github(b"{}", delivery="other"))).said == (202, "queued")
        assert (await edge.post("/gh", b"[]", github(b"[]", delivery="other"))).said == (409, "conflict")
        assert len(edge.mailbox.everything) == 2


async def test_gitlab_that_sends_twice_is_stored_once_and_its_token_never(tmp_path: Path) -> None:
    text = API + '/gl { auth hmac { provider gitlab; secret "raw:a shared secret" }\n pull { path /gl } }\n'
    async with local_edge(tmp_path, text) as edge:
        headers = {
            "X-Gitlab-Token": SECRET.decode(),
            "Idempotency-Key": "7fa3",
            "X-Gitlab-Event": "Push Hook",
        }
        assert (await edge.post("/gl", b"{}", headers)).said == (202, "queued")
        assert (await edge.post("/gl", b"{}", headers)).said == (202, "duplicate")
        assert (await edge.post("/gl", b"{}", {**headers, "X-Gitlab-Token": "x"})).status == 401
        (stored,) = edge.mailbox.everything
        assert SECRET not in stored.SerializeToString()


async def test_a_request_for_several_targets_is_stored_for_all_of_them_or_for_none(tmp_path: Path) -> None:
    text = '/f { deliver "https://a.example/x" {}\n deliver "https://b.example/x" {} }\n'
    async with local_edge(tmp_path, text) as edge:
        assert (await edge.post("/f")).said == (202, "queued")
        assert {len(found) for found in edge.mailbox.stored.values()} == {1} and len(edge.mailbox.stored) == 2
        first, _ = sorted(edge.mailbox.stored)
        edge.mailbox.stored[first] = edge.mailbox.stored[first] * 5
        edge.mailbox.capacity = 3
        assert (await edge.post("/f")).said == (503, "saturated")
        assert sum(len(found) for found in edge.mailbox.stored.values()) == 6


async def test_requests_that_arrive_together_travel_together(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN, mailbox=MemoryMailbox(gate=asyncio.Event())) as edge:
        posts = [asyncio.create_task(edge.post("/open", b"%d" % number)) for number in range(60)]
        async with asyncio.timeout(30):
            while edge.mailbox.groups + edge.posting.gauges()["waiting"] < 60:
                await asyncio.sleep(0.01)
        assert edge.mailbox.gate is not None
        edge.mailbox.gate.set()
        assert {(await each).status for each in posts} == {202}
        assert edge.mailbox.calls <= 6
        assert {each.body for each in edge.mailbox.everything} == {b"%d" % number for number in range(60)}


async def test_only_requests_that_have_shown_who_they_are_use_up_a_rate(tmp_path: Path) -> None:
    text = API + '/s { auth hmac "raw:a shared secret"\n rate_limit { rps 1; burst 3 }\n pull { path /s } }\n'
    clock = ManualClock()
    async with local_edge(tmp_path, text, clock=clock) as edge:
        now = clock.unix_ns() / 1e9
        wrong = signed(b"x", path="/s", key=b"guessed", at=now)
        assert {(await edge.post("/s", b"x", wrong)).status for _ in range(10)} == {401}
        for number in range(3):
            headers = signed(b"x", path="/s", nonce=f"n{number}", at=now)
            assert (await edge.post("/s", b"x", headers)).status == 202
        headers = signed(b"x", path="/s", nonce="n4", at=now)
        reply = await edge.post("/s", b"x", headers)
        assert reply.said == (429, "rate-limited") and reply.headers["Retry-After"] == "1"
        clock.advance(seconds=1.0)
        assert (await edge.post("/s", b"x", headers)).status == 202, "a signature is not burnt by 429"


async def test_an_address_that_goes_on_guessing_is_told_to_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    async with local_edge(tmp_path, SIGNED, clock=clock) as edge:
        at = clock.unix_ns() / 1e9
        wrong = signed(b"x", path="/s", key=b"guessed", at=at)
        said = [(await edge.post("/s", b"x", wrong)).status for _ in range(40)]
        assert said[:30] == [401] * 30 and said[30:] == [429] * 10
        assert (await edge.post("/s", b"x", signed(b"x", path="/s", at=at))).status == 202


async def test_bodies_and_headers_beyond_the_route_are_refused_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    text = API + "/o { max_body 1kb; max_headers 512b\n pull { path /o } }\n"
    async with local_edge(tmp_path, text) as edge:
        assert (await edge.post("/o", b"x" * 1024)).status == 202
        assert (await edge.post("/o", b"x" * 1025)).said == (413, "body-too-large")
        reply = await edge.raw(
            b"POST /o HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"100\r\n" + b"x" * 256 + b"\r\n"
            + (b"100\r\n" + b"x" * 256 + b"\r\n") * 5
        )  # fmt: skip
        assert reply.startswith(b"HTTP/1.1 413 ")
        assert (await edge.post("/o", b"x", {"X-Long": "y" * 600})).said == (431, "headers-too-large")
        assert len(edge.mailbox.everything) == 1


async def test_a_large_body_is_stored_small_and_one_that_does_not_fit_is_413(tmp_path: Path) -> None:
    import os
    import zlib

    async with local_edge(tmp_path, OPEN) as edge:
        body = b'{"n":1234567890}' * 100_000
        assert (await edge.post("/open", body)).status == 202
        (stored,) = edge.mailbox.everything
        assert stored.body_size == len(body) and zlib.decompress(stored.body) == body
        assert (await edge.post("/open", os.urandom(1 << 20))).said == (413, "body-over-message")


async def test_unknown_paths_and_methods_say_what_there_is(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        assert (await edge.post("/nothing")).said == (404, "no-route")
        reply = await edge.post("/open", method="DELETE")
        assert reply.said == (405, "method-not-allowed") and reply.headers["Allow"] == "POST"
        for path in ("//open", "/open/../open", "/%6fpen", "/open/%2e%2e", "/open//x", "/open/%2fx"):
            assert (await edge.post(path)).said == (400, "bad-path"), path
        assert edge.mailbox.everything == []


async def test_every_refusal_is_explained_and_nothing_of_the_request_is_in_it(tmp_path: Path) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        headers = signed(b"x", path="/s", key=b"guessed")
        reply = await edge.post("/s", b"secret body", headers)
        found = edge.recent.find(reply.headers["X-Request-ID"])
        assert found is not None
        assert (found["status"], found["reason"], found["route"]) == (401, "signature-mismatch", "/s")
        assert [each["step"] for each in found["steps"]] == ["route", "auth"]
        assert "3 signed forms" in found["steps"][-1]["detail"]
        assert headers["X-Signature"] not in str(found) and "secret body" not in str(found)
        early = signed(b"x", path="/s", at=1_700_000_000)
        reply = await edge.post("/s", b"x", early)
        found = edge.recent.find(reply.headers["X-Request-ID"])
        assert found is not None and "behind this machine's clock" in found["steps"][-1]["detail"]


async def test_the_page_of_metrics_counts_by_route_and_reason(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN + SIGNED.removeprefix(API)) as edge:
        for _ in range(3):
            await edge.post("/open")
        await edge.post("/s")
        page = edge.metrics.page({}).decode()
        assert "hookaido_ingress_accepted_total 3\n" in page and "hookaido_ingress_enqueued_total 3\n" in page
        assert (
            'hookaido_ingress_rejected_by_reason_total{route="/s",reason="signature-missing",status="401"} 1\n'
            in page
        )
        assert page.count("# TYPE hookaido_ingress_accepted_total counter\n") == 1
