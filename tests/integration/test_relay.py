"""Relay over mTLS: journals reach it whatever happens to either end, and unauthorised callers do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from services.relay.app import RelayApp
from services.relay.settings import RelaySettings
from snavio.clock import SystemClock
from snavio.config import MeshSettings
from snavio.errors import BadRequest, Conflict, SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import MAX_FRAME_BYTES
from snavio.rpc.status import error_of
from snavio.telemetry import schema
from snavio.telemetry.archive_query import ask
from snavio.telemetry.events import AbuseDetected, LegacyKeyUsed
from snavio.telemetry.journal_uploader import METHOD
from snavio.telemetry.reporting import Reporting
from snavio.v1.relay_pb2 import JournalPage, JournalReceipt
from snavio.v1.telemetry_pb2 import TelemetryBlock
from snavio.wiring import open_journal_mark
from tests.support.archived import Row, fields
from tests.support.control import Control, control_plane
from tests.support.telemetry import SOURCE, block, page

SETTINGS = RelaySettings(export_events=1, export_after_s=0.1, export_few_after_s=0.1, revocations_wait_s=0.0)
PATIENCE_S = 30.0
EVENT = LegacyKeyUsed("hmac-v1", SOURCE, None)


class Relays:
    """A Relay in this process that can stop and start again at the same address."""

    def __init__(self, mesh: MeshSettings) -> None:
        self.mesh = mesh
        self._app: RelayApp | None = None
        self._channels: list[MeshChannel] = []

    async def start(self) -> None:
        self._app = RelayApp(self.mesh, SETTINGS, SystemClock())
        port = await self._app.start()
        self.mesh = self.mesh.model_copy(update={"relay": f"127.0.0.1:{port}"})

    async def stop(self) -> None:
        if self._app is not None:
            await self._app.drain()
            self._app = None

    async def hang_up(self) -> None:
        """Close the channels that `reporting` opened."""
        for channel in self._channels:
            await channel.close()

    def reporting(self, service: str = "fast", instance: str = "fast-0") -> Reporting:
        files = CertificateFiles.in_folder(self.mesh.certificates(service))
        relay = MeshChannel(self.mesh.relay, files=files, service="relay")
        self._channels.append(relay)
        clock = SystemClock()
        epoch = clock.unix_ns()
        mark = open_journal_mark(self.mesh.state_dir / service, instance=instance, epoch=epoch)
        return Reporting(
            self.mesh, service=service, instance=instance, epoch=epoch, clock=clock, relay=relay, mark=mark
        )

    def seen(self, where: str = "true") -> list[tuple[object, ...]]:
        question = (
            f"SELECT instance, epoch, seq, event, dropped_events FROM events WHERE {where} ORDER BY ALL"
        )
        return list(ask(self.mesh.archive(), question).rows)

    def row(self, event: str) -> Row:
        """The only row of an event, with all its columns."""
        answer = ask(self.mesh.archive(), f"SELECT * FROM events WHERE event = '{event}'")
        (row,) = answer.rows
        return dict(zip(answer.columns, row, strict=True))

    async def eventually(self, where: str, count: int) -> list[tuple[object, ...]]:
        async with asyncio.timeout(PATIENCE_S):
            while len(found := await asyncio.to_thread(self.seen, where)) < count:
                await asyncio.sleep(0.05)
        assert len(found) == count
        return found


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Relays, Control]]:
    async with control_plane(folder / "state") as control:
        relays = Relays(control.mesh.model_copy(update={"relay": "127.0.0.1:0"}))
        await relays.start()
        try:
            yield relays, control
        finally:
            await relays.stop()
            await relays.hang_up()


def rows(count: int) -> bytes:
    written: bytes = block([1] * count).SerializeToString()
    return written


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_journal_reaches_the_archive_and_is_forgotten_at_home(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        reporting = relays.reporting()
        reporting.start()
        reporting.journal.append(rows(30))
        reporting.record(EVENT)
        await until(lambda: reporting.journal.gauges()["waiting_rows"] == 0)
        reporting.journal.append(rows(5))
        await reporting.stop()
        found = await relays.eventually("instance = 'fast-0'", 36)
        assert [row[2] for row in found] == list(range(1, 37))


async def test_what_a_start_that_was_cut_short_recorded_reaches_the_archive(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        reporting = relays.reporting()
        reporting.record(EVENT)
        await reporting.stop()
        assert len(await relays.eventually("instance = 'fast-0'", 1)) == 1


async def test_a_start_that_was_cut_short_with_nothing_to_say_calls_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        reporting = relays.reporting()
        await reporting.stop()
        assert (
            reporting._uploader.counters() == {"pages": 0, "reconnects": 0}
            and not reporting._uploader.started
        )


async def test_block_larger_than_a_frame_comes_in_pieces(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        reporting = relays.reporting()
        reporting.start()
        large = (
            rows(3)
            + TelemetryBlock(
                dictionary=["x" * 1000 for _ in range(2 * MAX_FRAME_BYTES // 1000)]
            ).SerializeToString()
        )
        assert len(large) > MAX_FRAME_BYTES
        reporting.journal.append(large)
        reporting.journal.append(rows(2))
        await until(lambda: reporting.journal.gauges()["waiting_rows"] == 0)
        await reporting.stop()
        assert [row[2] for row in await relays.eventually("instance = 'fast-0'", 5)] == [1, 2, 3, 4, 5]


async def test_a_relay_that_comes_back_goes_on_where_it_stood(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        reporting = relays.reporting()
        reporting.start()
        reporting.journal.append(rows(10))
        await until(lambda: reporting.journal.gauges()["waiting_rows"] == 0)
        await relays.stop()
        reporting.journal.append(rows(10))
        await relays.start()
        reporting.journal.append(rows(10))
        await relays.eventually("instance = 'fast-0'", 30)
        assert relays.seen("dropped_events IS NOT NULL") == []
        await reporting.stop()


async def test_what_a_crash_took_is_counted_and_what_was_durable_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        lost = relays.reporting()
        # Never carried: the process dies first.
        lost.journal.append(rows(40))
        lost.record(AbuseDetected(SOURCE, ("a",), 3, "2026-11-16T02:15:00.000000000Z"))
        lost.journal.append(rows(9))
        # Its end would upload them.
        assert lost._mark is not None
        lost._mark.close()
        again = relays.reporting()
        again.start()
        await relays.eventually("event = 'snavio.fairness.abuse_detected'", 1)
        gaps = await relays.eventually("event = 'snavio.telemetry.journal_gap'", 2)
        assert sorted(int(str(row[4])) for row in gaps) == [9, 40]
        await again.stop()
        # A third life has nothing more to report.
        third = relays.reporting()
        third.start()
        third.journal.append(rows(1))
        await until(lambda: third.journal.gauges()["waiting_rows"] == 0)
        await third.stop()
        assert len(relays.seen("event = 'snavio.telemetry.journal_gap'")) == 2


async def test_an_overflow_is_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        relays.mesh = relays.mesh.model_copy(update={"journal_max_bytes": 1 << 20})
        reporting = relays.reporting()
        size = len(rows(1000))
        for _ in range((2 << 20) // size):
            reporting.journal.append(rows(1000))
        dropped = reporting.journal.counters()["dropped_rows"]
        assert dropped > 0
        reporting.start()
        for event in (schema.JOURNAL_GAP, schema.DROPPED):
            await relays.eventually(f"event = '{event}'", 1)
        gap, lost = (fields(relays.row(event)) for event in (schema.JOURNAL_GAP, schema.DROPPED))
        detail = gap.pop("detail")
        assert gap == {"dropped_events": dropped, "reason": "overflow"}
        assert detail.startswith("fast-0 epoch ") and detail.endswith(f": 1 to {dropped}")
        assert lost.pop("queue_age_seconds") > 0
        assert lost.pop("last_received_at") <= datetime.now(UTC)
        tenant = SOURCE.partition("/")[0]
        assert lost == {"tenant": tenant, "dropped_events": dropped, "reason": "journal_overflow"}
        await reporting.stop()


async def exchange(relays: Relays, *pages: bytes, who: str = "fast") -> list[JournalReceipt]:
    """Relay's answers to pages, under a certificate; raises what the call raises."""
    channel = MeshChannel(
        relays.mesh.relay,
        files=CertificateFiles.in_folder(relays.mesh.certificates(who)),
        service="relay",
        trust_domain=relays.mesh.trust_domain,
    )
    try:
        stream = channel.stream(METHOD)
        answers = []
        async with asyncio.timeout(PATIENCE_S):
            for each in pages:
                await stream.write(each)
                answers.append(JournalReceipt.FromString(await stream.read()))
        return answers
    except grpc.aio.AioRpcError as error:
        raise error_of(error) from None
    except grpc.aio.UsageError as error:  # EOF is no message.
        raise AssertionError from error
    finally:
        await channel.close()


OPENING = JournalPage(instance="fast-0", epoch=7).SerializeToString()


BAD = {
    "noise": b"\xff",
    "no number": page(block([1, 1]), first_seq=0),
    "bad name": page(block([1]), instance="Fast 0"),
    "another journal": page(block([1]), instance="fast-1"),
    "from the future": page(block([1]), epoch=8),
    "huge number": page(block([1]), epoch=(1 << 64) - 1),
    "its own end": page(block([1]), ended=[JournalPage.Ended(epoch=7, last_seq=1)]),
    "unknown field": page(block([1])) + b"\x2a\x01x",
}


async def test_a_page_that_makes_no_sense_is_refused_and_nothing_of_it_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        for name, bad in BAD.items():
            with pytest.raises(BadRequest):
                await exchange(relays, OPENING, bad)
            (opened,) = await exchange(relays, OPENING)
            assert (opened.durable_seq, opened.epoch) == (0, 7), name
        assert [each.durable_seq for each in await exchange(relays, OPENING, page(block([1, 1])))] == [0, 2]


async def test_nobody_writes_anothers_journal(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        await exchange(relays, OPENING, page(block([1, 1])))
        for who in ("slow", "shield"):
            with pytest.raises(Conflict, match="another service"):
                await exchange(relays, OPENING, who=who)
        with pytest.raises(SnavioError):
            await exchange(relays, OPENING, who="operator-admin")
        # The service name in a page is ignored; the certificate decides.
        await exchange(
            relays,
            JournalPage(instance="slow-0", epoch=7).SerializeToString(),
            page(block([1], service="fast"), instance="slow-0"),
            who="slow",
        )
        await relays.eventually("instance = 'slow-0' AND service = 'slow'", 1)


async def test_a_page_that_comes_twice_is_stored_once(tmp_path: Path) -> None:
    async with running(tmp_path) as (relays, _):
        first = page(block([1] * 4), block([1] * 6))
        answers = await exchange(relays, OPENING, first, first, page(block([1] * 5), first_seq=11))
        assert [each.durable_seq for each in answers] == [0, 10, 10, 15]
        (opened,) = await exchange(relays, OPENING)
        assert opened.durable_seq == 15
        await relays.eventually("instance = 'fast-0'", 15)
