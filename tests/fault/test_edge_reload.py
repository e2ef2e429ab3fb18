"""Reloads of the edge: all or nothing, under load, and nothing forgotten that must outlive one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from snavio.clock import ManualClock
from snavio.edge.plan import EdgePlan
from snavio.errors import NotAllowed, SnavioError, Unavailable
from tests.support.edge import API, SECRET, LocalEdge, local_edge, signed

SIGNED = API + '/s { auth hmac "raw:a shared secret"\n rate_limit { rps 1; burst 2 }\n pull { path /s } }\n'
OPEN = API + "/open { pull { path /open } }\n"


async def reloaded(edge: LocalEdge, text: str) -> bool:
    edge.write(text)
    return await edge.reloading.reload()


async def test_a_file_with_a_mistake_changes_nothing_and_says_why(tmp_path: Path) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        before = edge.ingress.running
        for text in (
            "/open {",
            API + "/other { pull { path /o } }\n/x { }\n",
            API + '/o { auth hmac "env:NONE"\n pull { path /o } }\n',
            "",
        ):
            swapped = await reloaded(edge, text)
            if text:
                assert not swapped and edge.ingress.running is before
                assert edge.reloading.status.failed and edge.reloading.status.generation == 1
                assert (await edge.post("/open")).status == 202
        edge.file.unlink()
        assert not await edge.reloading.reload()
        assert await reloaded(edge, OPEN)
        assert edge.reloading.status.failed == ""


async def test_a_change_that_needs_a_restart_is_named_and_nothing_of_the_file_is_in_force(
    tmp_path: Path,
) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        assert not await reloaded(edge, "ingress { listen :9 }\n" + API + "/other { pull { path /o } }\n")
        assert edge.reloading.status.restart == ("ingress listen",)
        assert "restart-required" in edge.reloading.status.failed
        assert (await edge.post("/other")).status == 404
        assert (await edge.post("/open")).status == 202


async def test_a_replay_is_refused_and_a_bucket_stays_empty_after_a_reload(tmp_path: Path) -> None:
    clock = ManualClock()
    async with local_edge(tmp_path, SIGNED, clock=clock) as edge:
        at = clock.unix_ns() / 1e9
        captured = signed(b"x", path="/s", at=at)
        assert (await edge.post("/s", b"x", captured)).status == 202
        assert (await edge.post("/s", b"x", signed(b"x", path="/s", nonce="2", at=at))).status == 202
        assert await reloaded(edge, SIGNED + "# another generation\n")
        assert edge.reloading.status.generation == 2
        assert (await edge.post("/s", b"x", signed(b"x", path="/s", nonce="3", at=at))).said == (
            429,
            "rate-limited",
        )
        clock.advance(seconds=3)
        assert (await edge.post("/s", b"x", captured)).said == (401, "replayed")


async def test_a_secret_that_is_rotated_by_a_reload_verifies_at_once_and_the_old_one_no_more(
    tmp_path: Path,
) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        assert await reloaded(edge, SIGNED.replace("a shared secret", "another one"))
        assert (await edge.post("/s", b"x", signed(b"x", path="/s", key=SECRET))).status == 401
        assert (await edge.post("/s", b"x", signed(b"x", path="/s", key=b"another one"))).status == 202


async def test_no_request_under_load_sees_half_of_a_reload(tmp_path: Path) -> None:
    """Two files that differ in every route: whichever is in force, an answer belongs to one of them."""
    one = API + '/a { auth hmac "raw:a shared secret"\n pull { path /a } }\n/b { pull { path /b } }\n'
    two = API + '/a { pull { path /a2 } }\n/b { auth hmac "raw:a shared secret"\n pull { path /b2 } }\n'
    async with local_edge(tmp_path, one) as edge:
        wrong: list[tuple[str, int]] = []
        done = asyncio.Event()
        counted = 0

        async def load(worker: int) -> None:
            nonlocal counted
            number = 0
            while not done.is_set():
                number += 1
                body = b"%d" % number
                for path in ("/a", "/b"):
                    good = await edge.post(path, body, signed(body, path=path, nonce=f"{worker}-{number}"))
                    bad = await edge.post(
                        path, body, signed(body, path=path, nonce=f"{worker}-{number}", key=b"no")
                    )
                    counted += 2
                    if good.status != 202:
                        wrong.append((path, good.status))
                    # 202 where the file in force asks for nothing, 401 or 429 where it asks; never anything else.
                    if bad.status not in (202, 401, 429):
                        wrong.append((path, bad.status))

        workers = [asyncio.create_task(load(number)) for number in range(4)]
        for turn in range(30):
            assert await reloaded(edge, two if turn % 2 == 0 else one)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while counted < 100:
                await asyncio.sleep(0.01)
        done.set()
        await asyncio.gather(*workers)
        assert wrong == []
        assert edge.reloading.status.generation == 31


async def test_a_request_that_waits_for_the_mailbox_ends_under_the_plan_it_began_with(tmp_path: Path) -> None:
    async with local_edge(tmp_path, SIGNED) as edge:
        edge.mailbox.gate = asyncio.Event()
        asking = asyncio.create_task(edge.post("/s", b"x", signed(b"x", path="/s")))
        async with asyncio.timeout(30):
            while not edge.mailbox.groups:
                await asyncio.sleep(0.01)
        assert await reloaded(edge, OPEN)
        edge.mailbox.gate.set()
        assert (await asking).said == (202, "queued")
        assert (await edge.post("/s", b"x", signed(b"x", path="/s", nonce="2"))).status == 404


async def test_a_file_that_is_watched_is_read_once_for_each_change_also_when_it_has_mistakes(
    tmp_path: Path,
) -> None:
    async with local_edge(tmp_path, OPEN) as edge:
        await edge.reloading.look()
        assert edge.reloading.status.generation == 1
        edge.write(OPEN + "# changed\n")
        await edge.reloading.look()
        await edge.reloading.look()
        assert edge.reloading.status.generation == 2
        edge.write("/broken {")
        await edge.reloading.look()
        await edge.reloading.look()
        assert (
            edge.reloading.status.counts == {"ok": 2, "bad-hookaidofile": 1}
            or sum(edge.reloading.status.counts.values()) == 3
        )


async def test_a_mesh_that_is_away_or_refuses_the_rules_keeps_the_plan_that_was(tmp_path: Path) -> None:
    trouble: list[SnavioError] = []

    async def register(_plan: EdgePlan) -> None:
        if trouble:
            raise trouble[0]

    async with local_edge(tmp_path, OPEN, register=register) as edge:
        for error in (Unavailable("Registry is away."), NotAllowed("Not yours.")):
            trouble[:] = [error]
            assert not await reloaded(edge, OPEN + "/new { pull { path /new } }\n")
            assert (await edge.post("/new")).status == 404
            assert edge.reloading.status.failed.startswith(error.reason)
        trouble.clear()
        assert await edge.reloading.reload()
        assert (await edge.post("/new")).status == 202
