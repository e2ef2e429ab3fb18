"""Power cuts: the store of tenant streams loses no draft and no envelope that was acknowledged, and doubles none."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite_tenant_streams import SqliteTenantStreams
from snavio.clock import ManualClock
from snavio.ports.tenant_streams import NewDraft, StreamEntry
from tests.support.power import ForgetfulDisk, on

FULL = os.environ.get("SNAVIO_FULL") == "1"
ROUNDS = 6 if FULL else 1
STEPS = 120
CHANCES = {"beside: write": 0.02, "beside: sync": 0.05}
NOW = 1_794_794_400_000_000_000


@dataclass(frozen=True)
class Told:
    """Steps that were acknowledged: pages cut, and envelopes appended. `underway`: one more may have happened."""

    cut: int = 0
    sealed: int = 0
    underway: bool = False


class Writer:
    """Cuts a page into one draft and seals drafts, by turns of a dice; `told` is replaced and never changed."""

    def __init__(self, dice: random.Random) -> None:
        self.told = Told()
        self._dice = dice

    async def step(self, streams: SqliteTenantStreams) -> None:
        before = self.told
        self.told = replace(before, underway=True)
        if before.cut == before.sealed or self._dice.random() < 0.5:
            body = self._dice.randbytes(self._dice.choice([10, 5000, 60_000]))
            page = before.cut + 1
            await streams.cut(page, [NewDraft(f"id-{page}", "acme", "acme/shop", "command", NOW, 1, body)])
            self.told = Told(page, before.sealed)
        else:
            window = await streams.window("acme")
            (first,) = await streams.drafts("acme", limit=1, max_bytes=1)
            entry = StreamEntry(
                window.next_seq, first.new.envelope_id, "acme/shop", "command", 1, NOW, "b3:", first.new.body
            )
            await streams.append("acme", expected=window, fence=1, drafts=[first.draft_id], entries=[entry])
            self.told = Told(before.cut, before.sealed + 1)


async def verify(folder: Path, told: Told) -> None:
    """Every page that was cut is there once, as a draft or as an envelope, in order."""
    streams = await SqliteTenantStreams.open(folder / "streams.db", clock=ManualClock(NOW))
    try:
        window = await streams.window("acme")
        part = await streams.read("acme", after=window.low, limit=10_000, max_bytes=1 << 30)
        sealed = [entry.envelope_id for entry in part.entries]
        drafts = [
            one.new.envelope_id for one in await streams.drafts("acme", limit=10_000, max_bytes=1 << 30)
        ]
        pages = await streams.cut_through()
        assert [*sealed, *drafts] == [f"id-{page}" for page in range(1, pages + 1)]
        allowed = int(told.underway)
        assert told.cut <= pages <= told.cut + allowed
        assert told.sealed <= len(sealed) <= told.sealed + allowed
    finally:
        await streams.close()
    connection = connect(folder / "streams.db")
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


async def cut_at_moments(folder: Path, seed: str) -> int:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "streams") + seed)
    writer, path = Writer(dice), folder / "streams.db"
    disk = ForgetfulDisk(dice=dice, chances=CHANCES, witness=lambda: writer.told)
    await (await SqliteTenantStreams.open(path, clock=ManualClock(NOW))).close()
    disk.image(str(path)).durable[:] = path.read_bytes()
    with on(disk):
        streams = await SqliteTenantStreams.open(path, clock=ManualClock(NOW))
        for _ in range(STEPS):
            await writer.step(streams)
        await streams.close()
    for number, picture in enumerate(disk.pictures):
        left = folder / f"cut-{number}"
        left.mkdir()
        for name, content in picture.files.items():
            (left / name).write_bytes(content)
        try:
            await verify(left, picture.said)
        except AssertionError as error:
            raise AssertionError(f"Cut {number}, at a {picture.kind}: {error}") from error
    return len(disk.pictures)


async def test_a_power_cut_neither_loses_nor_doubles_an_event_of_a_stream(tmp_path: Path) -> None:
    cuts = 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        await asyncio.to_thread(folder.mkdir)
        cuts += await cut_at_moments(folder, str(number))
    assert cuts >= (120 if FULL else 20)
